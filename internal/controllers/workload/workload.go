// Package workload is the loop of controllers whose objects own others: a stateful set its pods, a deployment its replica sets, a cron job its jobs.
//
// An owner is looked at when it changes, when one of its dependents does, when there is a new one that it could take over, and at times that the controller asks
// for. It is looked at by one worker at a time, and only when the caches show all that was written for it: so a controller decides on what it has seen,
// and never twice on the same (docs/adr/0036). What fails is tried again, later each time.
//
// What an owner's dependents are to be is the controller's: Sync.
package workload

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// behind is after which time an owner is looked at again whose writes the caches do not show. The event that shows them comes long before.
const behind = time.Second

// Config says what a Loop is of.
type Config[T owned.Owner] struct {
	// Kind is that of the owners, of type T.
	Kind schema.GroupVersionKind
	// Owners, and Dependents, which are what they own, are watched by others, too; who made the Loop starts them. Dependents are indexed for package owned.
	Owners     cache.SharedIndexInformer
	Dependents []cache.SharedIndexInformer
	// Selector is what an owner takes over, of dependents that nobody owns; nil: owners of the kind take nothing over.
	Selector func(owner T) *metav1.LabelSelector
	// Workers is how many owners are looked at at a time.
	Workers int
	// Sync does what is to be done for an owner now, which is the cache's: who changes it copies it. It says after which time the owner is to be looked at again if
	// nothing happens before, 0: at no time, whether there was an error or not. An error is told of, unless it is a conflict, and Sync is called again.
	Sync func(ctx context.Context, owner T) (again time.Duration, err error)
	// Gone is told when an owner of a name is not there any more; nil: nobody is.
	Gone func(name cache.ObjectName)
	// Seen is told of each owner that comes, changes or (gone) goes, after it was put in line; nil: nobody is.
	Seen func(owner T, gone bool)
	// Beside runs while owners are looked at, from when the caches are filled until ctx ends; nil: nothing does.
	Beside func(ctx context.Context)
	Log    *slog.Logger
}

// Loop looks at the owners of a kind. Make it with New. Its methods are safe for concurrent use.
type Loop[T owned.Owner] struct {
	config Config[T]
	// Unseen knows what was written for owners and what the caches do not show yet. Whoever writes tells it.
	Unseen owned.Unseen
	takers owned.Takers[T]
	queue  *queue.Queue[cache.ObjectName]
	known  []cache.DoneChecker
}

// New returns a Loop that looks at nothing until it is run. What its functions use is to be there before the caches are filled.
func New[T owned.Owner](config Config[T]) (*Loop[T], error) {
	l := &Loop[T]{config: config, queue: queue.New[cache.ObjectName]()}
	handler := l.handler()
	dependents := owned.Dependents{Kind: config.Kind, Look: l.queue.Add, Unseen: &l.Unseen}
	if config.Selector != nil {
		l.takers = owned.NewTakers(config.Selector)
		handler = l.takers.Keep(handler)
		dependents.Orphan = func(dependent metav1.Object) { l.takers.Look(dependent, l.queue.Add) }
	}
	changed, err := config.Owners.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("watch objects of kind %s: %w", config.Kind.Kind, err)
	}
	l.known = append(l.known, changed.HasSyncedChecker())
	for _, informer := range config.Dependents {
		followed, err := dependents.Watch(informer)
		if err != nil {
			return nil, err
		}
		l.known = append(l.known, followed.HasSyncedChecker())
	}
	return l, nil
}

// handler has an owner looked at that comes, changes or goes.
func (l *Loop[T]) handler() cache.ResourceEventHandler {
	if l.config.Seen == nil {
		return owned.Each(l.queue.Add)
	}
	see := func(obj any, gone bool) {
		if owner, ok := informer.Last[T](obj); ok {
			l.queue.Add(cache.MetaObjectToName(owner))
			l.config.Seen(owner, gone)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { see(obj, false) }, UpdateFunc: func(_, obj any) { see(obj, false) },
		DeleteFunc: func(obj any) { see(obj, true) },
	}
}

// Run looks at owners until ctx ends, which is no error, from when the caches of owners and dependents are filled, and those of also. A Loop is run once.
func (l *Loop[T]) Run(ctx context.Context, also ...cache.DoneChecker) error {
	cache.WaitFor(ctx, "", append(also, l.known...)...)
	var beside sync.WaitGroup
	defer beside.Wait()
	if l.config.Beside != nil {
		beside.Go(func() { l.config.Beside(ctx) })
	}
	l.queue.Run(ctx, l.config.Workers, l.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			l.config.Log.Warn("an object is not as it should be yet, trying again", "kind", l.config.Kind.Kind, "namespace", name.Namespace, "name", name.Name, "error", err)
		}
	})
	return nil
}

// Look has an owner looked at.
func (l *Loop[T]) Look(name cache.ObjectName) { l.queue.Add(name) }

// LookAfter has an owner looked at when a time is over.
func (l *Loop[T]) LookAfter(owner T, d time.Duration) {
	l.queue.AddAfter(cache.MetaObjectToName(owner), d)
}

// LookAtAll has all owners looked at.
func (l *Loop[T]) LookAtAll() {
	for _, obj := range l.config.Owners.GetStore().List() {
		if owner, ok := informer.Last[T](obj); ok {
			l.queue.Add(cache.MetaObjectToName(owner))
		}
	}
}

// Told takes the answer to a write of an owner's status. One that is gone needs none.
func (l *Loop[T]) Told(written T, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("status: %w", err)
	}
	l.Unseen.Wrote(cache.MetaObjectToName(written), l.config.Owners.GetIndexer(), written.GetResourceVersion())
	return nil
}

func (l *Loop[T]) sync(ctx context.Context, name cache.ObjectName) error {
	obj, exists, err := l.config.Owners.GetIndexer().GetByKey(name.String())
	if err != nil {
		return err
	}
	owner, ok := informer.Last[T](obj)
	if !exists || !ok {
		l.Unseen.Forget(name)
		if l.config.Gone != nil {
			l.config.Gone(name)
		}
		return nil
	}
	if !l.Unseen.Nothing(name) {
		l.queue.AddAfter(name, behind)
		return nil
	}
	again, err := l.config.Sync(ctx, owner)
	if again > 0 {
		l.queue.AddAfter(name, again)
	}
	return err
}
