// Package namespace empties namespaces that are deleted, and lets them go then.
//
// The API server marks a namespace that is deleted as Terminating and creates nothing in it any more. This controller deletes what is in it: all that
// discovery lists, pods first, and only when they have gone what they may still have used. When nothing is left it takes the finalizer "kubernetes" out of
// spec.finalizers, through namespaces/finalize, with which the API server removes the namespace. What it waits for, and what went wrong, is in
// the namespace's conditions, in upstream's words.
//
// It keeps nothing: a deletion that was cut off goes on at the next start. While something is left (pods that end gracefully, objects with
// finalizers of others) it watches just that, and sleeps.
package namespace

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/queue"
)

// workers is how many namespaces are emptied at a time.
const workers = 4

// Discovery tells what the API server has.
type Discovery interface {
	// ServerPreferredNamespacedResourcesWithContext returns the resources in namespaces, each by its preferred version. With an error some may be
	// missing.
	ServerPreferredNamespacedResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// Config is what a Controller needs.
type Config struct {
	// Client has the right to update namespaces/status and namespaces/finalize.
	Client kubernetes.Interface
	// Metadata has the right to list, watch and delete whatever is in namespaces.
	Metadata  metadata.Interface
	Discovery Discovery
	// Namespaces are watched by others, too; who made the Controller starts them.
	Namespaces coreinformers.NamespaceInformer
	Log        *slog.Logger
}

// Controller empties namespaces. See the package's documentation.
type Controller struct {
	config Config
	queue  *queue.Queue[string]

	watches sync.WaitGroup
	mu      sync.Mutex
	// waits end the watches of what is left in a namespace.
	waits map[string]context.CancelFunc
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, queue: queue.New[string](), waits: map[string]context.CancelFunc{}}
	look := func(obj any) {
		if ns, ok := obj.(*corev1.Namespace); ok && isOurs(ns) {
			c.queue.Add(ns.Name)
		}
	}
	_, err := config.Namespaces.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look,
		UpdateFunc: func(old, obj any) {
			// Conditions that change are this controller's own doing.
			if was, ok := old.(*corev1.Namespace); !ok || !isOurs(was) {
				look(obj)
			}
		},
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				c.queue.Add(key) // its watches end
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	return c, nil
}

// isOurs says that a namespace is to be emptied.
func isOurs(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil && slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// Run empties namespaces until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue.Run(ctx, workers, c.sync, func(name string, err error) {
		c.config.Log.Warn("a namespace could not be emptied yet, trying again", "namespace", name, "error", err)
	})
	c.watches.Wait()
	return nil
}

// sync does what can be done now about a namespace. It is called for one at a time by one worker only.
func (c *Controller) sync(ctx context.Context, name string) error {
	c.stopWaiting(name)
	ns, err := c.config.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !isOurs(ns) {
		return nil
	}
	if err != nil {
		return err
	}
	found := c.empty(ctx, name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ns, err = c.tell(ctx, ns, found); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("write the conditions: %w", err)
	}
	if len(found.left) > 0 {
		c.wait(ctx, name, found.left)
	}
	if err := found.err(); err != nil || len(found.left) > 0 {
		return err
	}
	return c.finalize(ctx, ns)
}

// tell writes what was found into the status, if that changes it.
func (c *Controller) tell(ctx context.Context, ns *corev1.Namespace, found findings) (*corev1.Namespace, error) {
	conditions, changed := update(ns.Status.Conditions, found.conditions(), metav1.NewTime(time.Now()))
	if !changed && ns.Status.Phase == corev1.NamespaceTerminating {
		return ns, nil
	}
	ns = ns.DeepCopy()
	ns.Status.Phase, ns.Status.Conditions = corev1.NamespaceTerminating, conditions
	return c.config.Client.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{})
}

// finalize says that nothing is left in the namespace.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace) error {
	ns = ns.DeepCopy()
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err := c.config.Client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize: %w", err)
	}
	return nil
}
