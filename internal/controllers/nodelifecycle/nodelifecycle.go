package nodelifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"monopod.dev/monopod/internal/controllers/podsbynode"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/pods"
)

// The times that nothing may be heard of a node, upstream's: of one with a status, and of one that never had one.
const (
	monitorGrace = 50 * time.Second
	startupGrace = 60 * time.Second
)

// workers is how many nodes are worked on at a time.
const workers = 2

// Clock is the controller's own.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) clock.Timer
}

// Config is what a Controller needs.
type Config struct {
	// Client has the right to list and watch leases of kube-node-lease and to get them, to update nodes and nodes/status, and to patch pods/status.
	Client kubernetes.Interface
	// Nodes and Pods are watched by others, too; who made the Controller starts them.
	Nodes coreinformers.NodeInformer
	Pods  coreinformers.PodInformer
	// Events is where it says what becomes of a node.
	Events record.EventRecorder
	// Clock; nil: the machine's.
	Clock Clock
	Log   *slog.Logger
}

// Controller watches over nodes. See the package's documentation.
type Controller struct {
	config Config
	clock  Clock
	// leases are those of nodes only: locks of others are renewed more often.
	leases cache.SharedIndexInformer
	pods   cache.SharedIndexInformer
	known  []cache.DoneChecker
	queue  *queue.Queue[string]
	nodes  records
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{
		config: config, clock: config.Clock, pods: config.Pods.Informer(), queue: queue.New[string](),
		leases: coordinationinformers.NewFilteredLeaseInformer(config.Client, corev1.NamespaceNodeLease, 0, cache.Indexers{}, nil),
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	c.config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	look := func(obj any) {
		if m, ok := informer.Last[metav1.Object](obj); ok {
			c.queue.Add(m.GetName())
		}
	}
	always := cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look}
	nodes, nodesErr := config.Nodes.Informer().AddEventHandler(always)
	leases, leasesErr := c.leases.AddEventHandler(always)
	changed, podsErr := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.podChanged(nil, obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) { c.podChanged(old.(*corev1.Pod), obj.(*corev1.Pod)) },
	})
	err := errors.Join(nodesErr, leasesErr, podsErr, podsbynode.Index(c.pods), c.leases.SetTransform(onlyRenewal))
	if err != nil {
		return nil, fmt.Errorf("watch nodes, their leases and pods: %w", err)
	}
	c.known = []cache.DoneChecker{nodes.HasSyncedChecker(), leases.HasSyncedChecker(), changed.HasSyncedChecker()}
	return c, nil
}

// onlyRenewal keeps of a lease what is looked at.
func onlyRenewal(obj any) (any, error) {
	if l, ok := obj.(*coordinationv1.Lease); ok {
		slim := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, UID: l.UID, ResourceVersion: l.ResourceVersion}}
		slim.Spec.RenewTime = l.Spec.RenewTime
		return slim, nil
	}
	return obj, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.leases.RunWithContext(ctx)
	}()
	defer func() {
		cancel()
		<-ended
		c.nodes.stop()
	}()
	// A node whose lease is not known yet would seem to have none.
	cache.WaitFor(ctx, "", c.known...)
	c.queue.Run(ctx, workers, c.sync, func(name string, err error) {
		c.config.Log.Warn("a node could not be looked after yet, trying again", "node", name, "error", err)
	})
	return nil
}

// podChanged looks at a node that is not ready again when one of its pods says that it is.
func (c *Controller) podChanged(old, pod *corev1.Pod) {
	if pods.IsTrue(&pod.Status, corev1.PodReady) && (old == nil || !pods.IsTrue(&old.Status, corev1.PodReady)) && c.nodes.isDown(pod.Spec.NodeName) {
		c.queue.Add(pod.Spec.NodeName)
	}
}

// sync does what is to be done about a node.
func (c *Controller) sync(ctx context.Context, name string) error {
	node, err := c.config.Nodes.Lister().Get(name)
	if apierrors.IsNotFound(err) {
		c.nodes.forget(name)
		return nil
	}
	if err != nil {
		return err
	}
	r := c.nodes.of(node)
	now := c.clock.Now()
	r.hear(pulseOf(node, c.lease(name)), now)
	left := r.left(node, now)
	if left == 0 {
		if left, err = c.giveUp(ctx, r, node); err != nil {
			return written(err)
		}
		if left == 0 {
			return nil // the node's change brings us back
		}
	}
	r.wake(left, func(d time.Duration) clock.Timer { return c.clock.AfterFunc(d, func() { c.queue.Add(name) }) })
	if err := c.taint(ctx, node); err != nil {
		return written(err)
	}
	return c.tellPods(ctx, r, node)
}

// lease is the node's as the watch shows it; nil: there is none.
func (c *Controller) lease(name string) *coordinationv1.Lease {
	obj, found, err := c.leases.GetStore().GetByKey(corev1.NamespaceNodeLease + "/" + name)
	if err != nil || !found {
		return nil
	}
	return obj.(*coordinationv1.Lease)
}

// giveUp says of a node of which nothing was heard for too long that nothing is known of it. When the watch was late only, it is how long is left.
func (c *Controller) giveUp(ctx context.Context, r *vitals, node *corev1.Node) (left time.Duration, err error) {
	now, err := c.config.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		now, err = nil, nil
	}
	if err != nil {
		return 0, fmt.Errorf("is the lease renewed that the watch shows as too old: %w", err)
	}
	if at := c.clock.Now(); r.hear(pulseOf(node, now), at) {
		return r.left(node, at), nil
	}
	changed := node.DeepCopy()
	silent := silence(changed, metav1.NewTime(c.clock.Now()))
	if _, err := c.config.Client.CoreV1().Nodes().UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return 0, fmt.Errorf("status: %w", err)
	}
	c.config.Log.Warn("nothing was heard of a node's agent", "node", node.Name, "since", r.heard, "wasReady", silent)
	if silent {
		c.config.Events.Event(&corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: node.UID},
			corev1.EventTypeNormal, "NodeNotReady", "Node "+node.Name+" status is now: NodeNotReady")
	}
	return 0, nil
}

// taint has the node's taints follow its conditions.
func (c *Controller) taint(ctx context.Context, node *corev1.Node) error {
	taints, differ := taints(node, metav1.NewTime(c.clock.Now()))
	if !differ {
		return nil
	}
	changed := node.DeepCopy()
	changed.Spec.Taints = taints
	// Whole, with the version that was read: a merge patch cannot tell taints of one key apart.
	if _, err := c.config.Client.CoreV1().Nodes().Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("taints: %w", err)
	}
	return nil
}

// written leaves a node alone that somebody else has changed meanwhile: the change comes back by the watch.
func written(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
