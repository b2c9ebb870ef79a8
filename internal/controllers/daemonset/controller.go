package daemonset

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/queue"
	"monopod.dev/monopod/internal/controllers/revisions"
)

const (
	// workers is how many sets are worked on at a time.
	workers = 2
	// behind is after which time a set is looked at again whose writes the caches do not show. The event that shows them comes long before.
	behind = time.Second
	// failpoints begins the names of the failpoints.
	failpoints = "controllers/daemonset"
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Sets, Pods, Nodes and Revisions are watched by others, too; who made the Controller starts them.
	Sets      appsinformers.DaemonSetInformer
	Pods      coreinformers.PodInformer
	Nodes     coreinformers.NodeInformer
	Revisions appsinformers.ControllerRevisionInformer
	Events    record.EventRecorder
	// Pace is that of all controllers that make pods; nil: as fast as they can be made.
	Pace *owned.Pace
	Log  *slog.Logger
}

// Controller keeps the pods of daemon sets. See the package's documentation.
type Controller struct {
	config   Config
	sets     appslisters.DaemonSetLister
	nodes    corelisters.NodeLister
	cache    owned.Versioned // says what was seen of sets
	pods     cache.SharedIndexInformer
	history  revisions.Keeper
	control  owned.Pods
	takers   owned.Takers[*appsv1.DaemonSet]
	unseen   owned.Unseen
	patience patience
	queue    *queue.Queue[cache.ObjectName]
	known    []cache.DoneChecker
	now      func() time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config: config, sets: config.Sets.Lister(), nodes: config.Nodes.Lister(), cache: config.Sets.Informer().GetIndexer(), pods: config.Pods.Informer(),
		takers: owned.NewTakers(func(owner *appsv1.DaemonSet) *metav1.LabelSelector { return owner.Spec.Selector }),
		queue:  queue.New[cache.ObjectName](), now: time.Now,
	}
	c.history = revisions.Keeper{Client: config.Client, Revisions: config.Revisions.Informer(), Unseen: &c.unseen, Failpoints: failpoints}
	c.control = owned.Pods{Client: config.Client, Events: config.Events, Cache: c.pods.GetIndexer(), Unseen: &c.unseen}
	changed, err := config.Sets.Informer().AddEventHandler(c.takers.Each(c.queue.Add))
	if err != nil {
		return nil, fmt.Errorf("watch daemon sets: %w", err)
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
	nodes, err := config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.all() }, UpdateFunc: c.nodeChanged, DeleteFunc: func(any) { c.all() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	c.known = []cache.DoneChecker{changed.HasSyncedChecker(), pods.HasSyncedChecker(), history.HasSyncedChecker(), nodes.HasSyncedChecker()}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("a daemon set is not as it should be, trying again", "namespace", name.Namespace, "daemonset", name.Name, "error", err)
		}
	})
	return nil
}

// nodeChanged has all sets looked at when what they ask of nodes has changed: an agent writes its node's status again and again.
func (c *Controller) nodeChanged(old, now any) {
	a, ok := old.(*corev1.Node)
	b, also := now.(*corev1.Node)
	if !ok || !also || a.UID != b.UID || !equality.Semantic.DeepEqual(a.Labels, b.Labels) || !equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) {
		c.all()
	}
}

// all has all sets looked at.
func (c *Controller) all() {
	all, err := c.sets.List(labels.Everything())
	if err != nil {
		c.config.Log.Error("whom a change is about cannot be told", "error", err)
		return
	}
	for _, set := range all {
		c.queue.Add(cache.MetaObjectToName(set))
	}
}

// orphan has those sets looked at that could take a pod or a revision over.
func (c *Controller) orphan(dependent metav1.Object) { c.takers.Look(dependent, c.queue.Add) }

// sync does what is to be done for a set now.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	set, err := c.sets.DaemonSets(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.unseen.Forget(name)
		c.patience.forget(name)
		return nil
	}
	if err != nil {
		return err
	}
	if !c.unseen.Nothing(name) {
		c.queue.AddAfter(name, behind)
		return nil
	}
	state, err := c.state(ctx, set)
	if err != nil {
		return err
	}
	plan, err := Decide(state)
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

// state is what is known of a set, after it has taken over and let go those that are to change hands.
func (c *Controller) state(ctx context.Context, set *appsv1.DaemonSet) (s State, err error) {
	s = State{Set: set, Now: c.now(), Patience: func(node string) time.Duration { return c.patience.left(set, node, c.now()) }}
	if set.DeletionTimestamp != nil {
		return s, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return s, fmt.Errorf("selector: %w", err)
	}
	live := func(ctx context.Context) (metav1.Object, error) {
		return c.config.Client.AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	}
	if s.Revisions, err = c.history.Claim(ctx, owner(set), selector, live); err != nil {
		return s, err
	}
	all, err := owned.OfOrOrphans[*corev1.Pod](c.pods, set, selector)
	if err != nil {
		return s, err
	}
	s.Pods, err = owned.Claimer[*corev1.Pod]{
		Kind: kind, Live: live,
		Patch: func(ctx context.Context, pod string, of types.PatchType, data []byte) (*corev1.Pod, error) {
			return c.config.Client.CoreV1().Pods(set.Namespace).Patch(ctx, pod, of, data, metav1.PatchOptions{})
		},
		Wrote: func(version string) { c.unseen.Wrote(cache.MetaObjectToName(set), c.pods.GetIndexer(), version) },
	}.Claim(ctx, set, owned.Claim(set, selector, all))
	if err != nil {
		return s, err
	}
	s.Nodes, err = c.nodes.List(labels.Everything())
	return s, err
}
