package replicas

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/workload"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/pods"
)

// workers is how many objects are worked on at a time.
const workers = 5

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Pods are watched by others, too; who made the Controller starts them.
	Pods   coreinformers.PodInformer
	Events record.EventRecorder
	// Pace is that of all controllers that make pods; nil: as fast as they can be made.
	Pace *owned.Pace
	Log  *slog.Logger
}

// Controller keeps the pods of objects of type T.
type Controller[T owned.Owner] struct {
	config  Config
	gvk     schema.GroupVersionKind
	kind    kind[T]
	objects cache.SharedIndexInformer
	pods    cache.SharedIndexInformer
	loop    *workload.Loop[T]
	control owned.Pods
	now     func() time.Time
}

// ForReplicaSets returns the controller of replica sets. It does nothing until it is run.
func ForReplicaSets(config Config, sets appsinformers.ReplicaSetInformer) (*Controller[*appsv1.ReplicaSet], error) {
	return newController(config, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), replicaSets, sets.Informer())
}

// ForReplicationControllers returns the controller of replication controllers. It does nothing until it is run.
func ForReplicationControllers(config Config, controllers coreinformers.ReplicationControllerInformer) (*Controller[*corev1.ReplicationController], error) {
	return newController(config, corev1.SchemeGroupVersion.WithKind("ReplicationController"), replicationControllers, controllers.Informer())
}

func newController[T owned.Owner](config Config, gvk schema.GroupVersionKind, k kind[T], objects cache.SharedIndexInformer) (c *Controller[T], err error) {
	c = &Controller[T]{config: config, gvk: gvk, kind: k, objects: objects, pods: config.Pods.Informer(), now: time.Now}
	if err := owned.Index(objects); err != nil {
		return nil, err
	}
	c.loop, err = workload.New(workload.Config[T]{
		Kind: gvk, Owners: objects, Dependents: []cache.SharedIndexInformer{c.pods}, Selector: k.selector, Workers: workers, Sync: c.sync, Log: config.Log,
	})
	if err != nil {
		return nil, err
	}
	c.control = owned.Pods{Client: config.Client, Kind: gvk, Events: config.Events, Cache: c.pods.GetIndexer(), Unseen: &c.loop.Unseen}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller[T]) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// sync does what is to be done for an object now.
func (c *Controller[T]) sync(ctx context.Context, object T) (again time.Duration, err error) {
	want, err := c.kind.wanted(object)
	if err != nil {
		return 0, fmt.Errorf("selector: %w", err)
	}
	mine, err := c.claim(ctx, object, want.Selector)
	if err != nil {
		return 0, err
	}
	neighbours, err := c.neighbours(object, mine)
	if err != nil {
		return 0, err
	}
	plan := Decide(want, mine, neighbours, c.now())
	var failed *failure
	if object.GetDeletionTimestamp() == nil {
		var more time.Duration
		more, failed, err = c.act(ctx, object, want, plan)
		if more > 0 {
			c.loop.LookAfter(object, more)
		}
	}
	if told, changed := c.kind.status(object, plan.Counts, failed, c.now()); changed {
		if err := c.loop.Told(c.kind.write(ctx, c.config.Client, told)); err != nil {
			return 0, err
		}
	}
	return plan.Again, err
}

// claim returns the pods of an object, after it has taken over and let go those that are to change hands.
func (c *Controller[T]) claim(ctx context.Context, object T, selector labels.Selector) ([]*corev1.Pod, error) {
	all, err := owned.OfOrOrphans[*corev1.Pod](c.pods, object, selector)
	if err != nil {
		return nil, err
	}
	claims := owned.Claim(object, selector, all)
	// A pod that has ended is nobody's any more: its owner has another one in its place.
	claims.Adopt, claims.Release = slices.DeleteFunc(claims.Adopt, pods.Ended), slices.DeleteFunc(claims.Release, pods.Ended)
	return c.control.Claim(ctx, object, claims, func(ctx context.Context) (metav1.Object, error) {
		return c.kind.live(ctx, c.config.Client, object.GetNamespace(), object.GetName())
	})
}

// neighbours are the pods of all objects that have the same controller as an object: the replica sets of a deployment.
func (c *Controller[T]) neighbours(object T, mine []*corev1.Pod) ([]*corev1.Pod, error) {
	of := metav1.GetControllerOfNoCopy(object)
	if of == nil {
		return mine, nil
	}
	siblings, err := owned.Of[T](c.objects, of.UID)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	for _, sibling := range siblings {
		theirs, err := owned.Of[*corev1.Pod](c.pods, sibling.GetUID())
		if err != nil {
			return nil, err
		}
		all = append(all, theirs...)
	}
	return all, nil
}

// act makes and deletes pods as planned, and says after which time there are more to be made; 0: there are none. The failure is what the status says of the
// error.
func (c *Controller[T]) act(ctx context.Context, object T, want Wanted, plan Plan) (time.Duration, *failure, error) {
	more, err := c.config.Pace.SlowStart(plan.Create, func(int) error {
		if err := failpoint.Hit("controllers/replicas/create"); err != nil {
			return err
		}
		if err := c.control.Create(ctx, object, owned.FromTemplate(want.Template, object, c.gvk)); err != nil {
			return err
		}
		return failpoint.Hit("controllers/replicas/created")
	})
	if err != nil {
		return 0, &failure{failedCreate, err.Error()}, err
	}
	err = owned.AtOnce(len(plan.Delete), func(i int) error {
		if err := failpoint.Hit("controllers/replicas/delete"); err != nil {
			return err
		}
		return c.control.Delete(ctx, object, plan.Delete[i])
	})
	if err != nil {
		return 0, &failure{failedDelete, err.Error()}, err
	}
	return more, nil, nil
}
