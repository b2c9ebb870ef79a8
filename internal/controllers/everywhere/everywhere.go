// Package everywhere keeps an object in every namespace.
//
// It guarantees that the object is looked at in each active namespace at the start, when the namespace comes or changes, and when the object is changed or
// deleted; and that a failure is tried again, later each time. It holds nothing in memory but the kept objects themselves.
package everywhere

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// Config is what a Keeper needs.
type Config struct {
	// Namespaces is an informer that somebody else runs.
	Namespaces coreinformers.NamespaceInformer
	// Objects is an informer of the kept objects alone (Named), which the Keeper runs.
	Objects cache.SharedIndexInformer
	// Keep makes the object of a namespace as it is to be. known is what the informer knows of it, nil: that there is none. It may be out of date, and must
	// not be changed.
	Keep func(ctx context.Context, namespace string, known any) error
	// Name is the objects' name, Log says what failed; nil: nobody is told.
	Name string
	Log  *slog.Logger
}

// Named has an informer see only the objects of that name, in all namespaces.
func Named(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// Keeper keeps the objects of a Config.
type Keeper struct {
	cfg   Config
	queue *queue.Queue[string]
}

// New makes a Keeper, which does nothing before Run.
func New(cfg Config) *Keeper {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{cfg: cfg, queue: queue.New[string]()}
}

// Run keeps the objects until ctx ends, which is no error. It is called once, and when it returns nothing of it is at work.
func (k *Keeper) Run(ctx context.Context) error {
	namespaces, err := k.cfg.Namespaces.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { k.add(obj, metav1.Object.GetName) },
		UpdateFunc: func(_, obj any) { k.add(obj, metav1.Object.GetName) },
	})
	if err != nil {
		return err
	}
	objects, err := k.cfg.Objects.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { k.add(obj, metav1.Object.GetNamespace) },
		UpdateFunc: func(_, obj any) { k.add(obj, metav1.Object.GetNamespace) },
		DeleteFunc: func(obj any) { k.add(obj, metav1.Object.GetNamespace) },
	})
	if err != nil {
		return errors.Join(err, k.cfg.Namespaces.Informer().RemoveEventHandler(namespaces))
	}
	var all sync.WaitGroup
	all.Go(func() { k.cfg.Objects.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), namespaces.HasSynced, objects.HasSynced) {
		k.queue.Run(ctx, 1, k.look, func(namespace string, err error) {
			k.cfg.Log.Warn("an object that belongs into every namespace could not be put there; it is tried again",
				"namespace", namespace, "name", k.cfg.Name, "error", err)
		})
	}
	k.queue.ShutDown()
	all.Wait()
	return k.cfg.Namespaces.Informer().RemoveEventHandler(namespaces)
}

// add puts the namespace that an object tells of in line.
func (k *Keeper) add(obj any, namespace func(metav1.Object) string) {
	if m, ok := informer.Last[metav1.Object](obj); ok {
		k.queue.Add(namespace(m))
	}
}

func (k *Keeper) look(ctx context.Context, namespace string) error {
	ns, err := k.cfg.Namespaces.Lister().Get(namespace)
	if apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil {
		return nil
	}
	if err != nil {
		return err
	}
	known, exists, err := k.cfg.Objects.GetStore().GetByKey(namespace + "/" + k.cfg.Name)
	if err != nil {
		return err
	}
	if !exists {
		known = nil
	}
	err = k.cfg.Keep(ctx, namespace, known)
	switch {
	case apierrors.IsAlreadyExists(err) && known == nil, apierrors.IsConflict(err):
		return nil // what is there is still on its way to the informer, and is looked at when it has come
	case apierrors.IsNotFound(err) && known == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the namespace goes
	}
	return err
}
