package daemonset

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
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/revisions"
	"monopod.dev/monopod/internal/controllers/workload"
)

const (
	// workers is how many sets are worked on at a time.
	workers = 2
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
	nodes    corelisters.NodeLister
	pods     cache.SharedIndexInformer
	loop     *workload.Loop[*appsv1.DaemonSet]
	known    cache.DoneChecker // of nodes
	history  revisions.Keeper
	control  owned.Pods
	patience patience
	now      func() time.Time
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (c *Controller, err error) {
	c = &Controller{config: config, nodes: config.Nodes.Lister(), pods: config.Pods.Informer(), now: time.Now}
	history := config.Revisions.Informer()
	c.loop, err = workload.New(workload.Config[*appsv1.DaemonSet]{
		Kind: kind, Owners: config.Sets.Informer(), Dependents: []cache.SharedIndexInformer{c.pods, history},
		Selector: func(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector },
		Workers:  workers, Sync: c.sync, Gone: c.patience.forget, Log: config.Log,
	})
	if err != nil {
		return nil, err
	}
	c.history = revisions.Keeper{Client: config.Client, Revisions: history, Unseen: &c.loop.Unseen, Failpoints: failpoints}
	c.control = owned.Pods{Client: config.Client, Kind: kind, Events: config.Events, Cache: c.pods.GetIndexer(), Unseen: &c.loop.Unseen}
	nodes, err := config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.loop.LookAtAll() }, UpdateFunc: c.nodeChanged, DeleteFunc: func(any) { c.loop.LookAtAll() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	c.known = nodes.HasSyncedChecker()
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx, c.known) }

// nodeChanged has all sets looked at when what they ask of nodes has changed: an agent writes its node's status again and again.
func (c *Controller) nodeChanged(old, now any) {
	a, ok := old.(*corev1.Node)
	b, also := now.(*corev1.Node)
	if !ok || !also || a.UID != b.UID || !equality.Semantic.DeepEqual(a.Labels, b.Labels) || !equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) {
		c.loop.LookAtAll()
	}
}

// sync does what is to be done for a set now.
func (c *Controller) sync(ctx context.Context, set *appsv1.DaemonSet) (again time.Duration, err error) {
	state, err := c.state(ctx, set)
	if err != nil {
		return 0, err
	}
	plan, err := Decide(state)
	if err != nil {
		return 0, err
	}
	if err := c.act(ctx, set, plan); err != nil {
		return 0, err
	}
	return plan.Again, nil
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
	if s.Pods, err = c.control.Claim(ctx, set, owned.Claim(set, selector, all), live); err != nil {
		return s, err
	}
	s.Nodes, err = c.nodes.List(labels.Everything())
	return s, err
}
