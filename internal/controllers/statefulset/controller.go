package statefulset

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/queue"
	"monopod.dev/monopod/internal/controllers/revisions"
)

const (
	// workers is how many sets are worked on at a time.
	workers = 5
	// behind is after which time a set is looked at again whose writes the caches do not show. The event that shows them comes long before.
	behind = time.Second
	// failpoints begins the names of the failpoints.
	failpoints = "controllers/statefulset"
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Sets, Pods and Revisions are watched by others, too; who made the Controller starts them.
	Sets      appsinformers.StatefulSetInformer
	Pods      coreinformers.PodInformer
	Revisions appsinformers.ControllerRevisionInformer
	Events    record.EventRecorder
	// Pace is that of all controllers that make pods; nil: as fast as they can be made.
	Pace *owned.Pace
	Log  *slog.Logger
}

// Controller keeps the pods of stateful sets. See the package's documentation.
type Controller struct {
	config  Config
	sets    appslisters.StatefulSetLister
	cache   owned.Versioned // says what was seen of sets
	pods    cache.SharedIndexInformer
	history revisions.Keeper
	control owned.Pods
	takers  owned.Takers[*appsv1.StatefulSet]
	unseen  owned.Unseen
	queue   *queue.Queue[cache.ObjectName]
	known   []cache.DoneChecker
	now     func() time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config: config, sets: config.Sets.Lister(), cache: config.Sets.Informer().GetIndexer(), pods: config.Pods.Informer(),
		takers: owned.NewTakers(func(owner *appsv1.StatefulSet) *metav1.LabelSelector { return owner.Spec.Selector }),
		queue:  queue.New[cache.ObjectName](), now: time.Now,
	}
	c.history = revisions.Keeper{Client: config.Client, Revisions: config.Revisions.Informer(), Unseen: &c.unseen, Failpoints: failpoints}
	c.control = owned.Pods{Client: config.Client, Events: config.Events, Cache: c.pods.GetIndexer(), Unseen: &c.unseen, Tell: c.told}
	changed, err := config.Sets.Informer().AddEventHandler(c.takers.Each(c.queue.Add))
	if err != nil {
		return nil, fmt.Errorf("watch stateful sets: %w", err)
	}
	dependents := owned.Dependents{Kind: kind, Look: c.queue.Add, Orphan: c.orphan, Unseen: &c.unseen}
	pods, err := dependents.Watch(c.pods)
	if err != nil {
		return nil, err
	}
	history, err := dependents.Watch(config.Revisions.Informer())
	if err != nil {
		return nil, err
	}
	c.known = []cache.DoneChecker{changed.HasSyncedChecker(), pods.HasSyncedChecker(), history.HasSyncedChecker()}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("a stateful set is not as it should be, trying again", "namespace", name.Namespace, "statefulset", name.Name, "error", err)
		}
	})
	return nil
}

// orphan has those sets looked at that could take a pod or a revision over.
func (c *Controller) orphan(dependent metav1.Object) { c.takers.Look(dependent, c.queue.Add) }

// sync does what is to be done for a set now.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	set, err := c.sets.StatefulSets(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.unseen.Forget(name)
		return nil
	}
	if err != nil {
		return err
	}
	if !c.unseen.Nothing(name) {
		c.queue.AddAfter(name, behind)
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	live := func(ctx context.Context) (metav1.Object, error) {
		return c.config.Client.AppsV1().StatefulSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	}
	history, err := c.history.Claim(ctx, owner(set), selector, live)
	if err != nil {
		return err
	}
	pods, err := c.claim(ctx, set, selector, live)
	if err != nil {
		return err
	}
	plan, err := Decide(State{Set: set, Pods: pods, Revisions: history, Now: c.now()})
	if err != nil {
		return err
	}
	if err := c.act(ctx, set, plan); err != nil {
		return err
	}
	if plan.Again > 0 {
		c.queue.AddAfter(name, plan.Again)
	}
	return nil
}

// claim returns the pods of a set, after it has taken over and let go those that are to change hands. Only those with names of the set can be its pods.
func (c *Controller) claim(
	ctx context.Context, set *appsv1.StatefulSet, selector labels.Selector, live func(context.Context) (metav1.Object, error),
) ([]*corev1.Pod, error) {
	all, err := owned.OfOrOrphans[*corev1.Pod](c.pods, set, selector)
	if err != nil {
		return nil, err
	}
	claims := owned.ClaimThose(set, func(pod *corev1.Pod) bool {
		_, named := ordinal(set, pod)
		return named && selector.Matches(labels.Set(pod.Labels))
	}, all)
	return owned.Claimer[*corev1.Pod]{
		Kind: kind, Live: live,
		Patch: func(ctx context.Context, pod string, of types.PatchType, data []byte) (*corev1.Pod, error) {
			return c.config.Client.CoreV1().Pods(set.Namespace).Patch(ctx, pod, of, data, metav1.PatchOptions{})
		},
		Wrote: func(version string) { c.unseen.Wrote(cache.MetaObjectToName(set), c.pods.GetIndexer(), version) },
	}.Claim(ctx, set, claims)
}
