package statefulset

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/revisions"
	"monopod.dev/monopod/internal/controllers/workload"
)

const (
	// workers is how many sets are worked on at a time.
	workers = 5
	// failpoints begins the names of the failpoints.
	failpoints = "controllers/statefulset"
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Sets, Pods, Revisions and Claims are watched by others, too; who made the Controller starts them.
	Sets      appsinformers.StatefulSetInformer
	Pods      coreinformers.PodInformer
	Revisions appsinformers.ControllerRevisionInformer
	Claims    coreinformers.PersistentVolumeClaimInformer
	Events    record.EventRecorder
	// Pace is that of all controllers that make pods; nil: as fast as they can be made.
	Pace *owned.Pace
	Log  *slog.Logger
}

// Controller keeps the pods of stateful sets. See the package's documentation.
type Controller struct {
	config  Config
	pods    cache.SharedIndexInformer
	loop    *workload.Loop[*appsv1.StatefulSet]
	history revisions.Keeper
	control owned.Pods
	// claims are those of all namespaces, and claimed says that they are known.
	claims  cache.SharedIndexInformer
	claimed cache.DoneChecker
	now     func() time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (c *Controller, err error) {
	c = &Controller{config: config, pods: config.Pods.Informer(), claims: config.Claims.Informer(), now: time.Now}
	history := config.Revisions.Informer()
	c.loop, err = workload.New(workload.Config[*appsv1.StatefulSet]{
		Kind: kind, Owners: config.Sets.Informer(), Dependents: []cache.SharedIndexInformer{c.pods, history},
		Selector: func(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector },
		Workers:  workers, Sync: c.sync, Log: config.Log,
	})
	if err != nil {
		return nil, err
	}
	claims, err := c.claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: c.claimGone,
		UpdateFunc: func(was, is any) {
			if !equality.Semantic.DeepEqual(was.(*corev1.PersistentVolumeClaim).OwnerReferences, is.(*corev1.PersistentVolumeClaim).OwnerReferences) {
				c.claimGone(is) // it may belong to nobody that goes any more
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	c.claimed = claims.HasSyncedChecker()
	c.history = revisions.Keeper{Client: config.Client, Revisions: history, Unseen: &c.loop.Unseen, Failpoints: failpoints}
	c.control = owned.Pods{Client: config.Client, Kind: kind, Events: config.Events, Cache: c.pods.GetIndexer(), Unseen: &c.loop.Unseen, Tell: c.told}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx, c.claimed) }

// sync does what is to be done for a set now.
func (c *Controller) sync(ctx context.Context, set *appsv1.StatefulSet) (again time.Duration, err error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return 0, fmt.Errorf("selector: %w", err)
	}
	live := func(ctx context.Context) (metav1.Object, error) {
		return c.config.Client.AppsV1().StatefulSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	}
	history, err := c.history.Claim(ctx, owner(set), selector, live)
	if err != nil {
		return 0, err
	}
	all, err := owned.OfOrOrphans[*corev1.Pod](c.pods, set, selector)
	if err != nil {
		return 0, err
	}
	// Only those with names of the set can be its pods.
	pods, err := c.control.Claim(ctx, set, owned.ClaimThose(set, func(pod *corev1.Pod) bool {
		_, named := ordinal(set, pod)
		return named && selector.Matches(labels.Set(pod.Labels))
	}, all), live)
	if err != nil {
		return 0, err
	}
	plan, err := Decide(State{Set: set, Pods: pods, Revisions: history, Claim: func(name string) *corev1.PersistentVolumeClaim { return c.claim(set, name) }, Now: c.now()})
	if err != nil {
		return 0, err
	}
	if err := c.act(ctx, set, plan); err != nil {
		return 0, err
	}
	return plan.Again, nil
}
