// Package namespaces makes the namespaces that the system needs and finishes the deletion of others: what is in a
// terminating namespace is deleted, and when nothing is left the namespace loses its finalizer "kubernetes".
//
// It works level-triggered on what the storages hold: a deletion that a crash has interrupted goes on at the next start.
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// System are the namespaces that always exist: users' default, the system's own, what everybody may read of it, and that of nodes' leases.
func System() []string {
	return []string{corev1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// Create makes the given namespaces, where they do not exist yet.
func Create(ctx context.Context, storage rest.Creater, names []string) error {
	ctx = genericrequest.WithNamespace(ctx, "")
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		// The handlers of requests do this for the others' objects.
		rest.FillObjectMetaSystemFields(ns)
		if _, err := storage.Create(ctx, ns, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make namespace %q: %w", name, err)
		}
	}
	return nil
}

// Storage is what the deleter needs of the resource namespaces.
type Storage interface {
	rest.Lister
	rest.Watcher
}

// Contents is a resource whose objects are in namespaces.
type Contents interface {
	rest.Lister
	rest.Watcher
	rest.CollectionDeleter
}

// Config is what a Deleter needs.
type Config struct {
	Namespaces Storage
	// Finalize is the subresource namespaces/finalize.
	Finalize rest.Updater
	// Contents are the resources in namespaces by their names.
	Contents map[string]Contents
	Log      *slog.Logger
}

// Deleter finishes the deletion of namespaces.
type Deleter struct {
	cfg     Config
	workers sync.WaitGroup

	mu sync.Mutex
	// busy are the namespaces that have a worker.
	busy map[string]bool
}

// NewDeleter makes a Deleter; it does nothing before Run.
func NewDeleter(cfg Config) *Deleter { return &Deleter{cfg: cfg, busy: map[string]bool{}} }

const (
	// relistInterval bounds how long an event that was missed goes unnoticed.
	relistInterval = time.Minute
	// retryInterval is between two attempts of something that fails.
	retryInterval = time.Second
)

// Run works until ctx ends, and returns when its goroutines have ended.
func (d *Deleter) Run(ctx context.Context) {
	defer d.workers.Wait()
	ctx = genericrequest.WithNamespace(ctx, "")
	for ctx.Err() == nil {
		err := d.follow(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		d.cfg.Log.Warn("watching namespaces failed; trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// follow lists the namespaces and watches them for up to relistInterval. Workers live as long as parent.
func (d *Deleter) follow(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, relistInterval)
	defer cancel()
	list, err := d.cfg.Namespaces.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return err
	}
	all := list.(*corev1.NamespaceList)
	for i := range all.Items {
		d.look(parent, &all.Items[i])
	}
	w, err := d.cfg.Namespaces.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: all.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			obj := e.Object
			if shared, ok := obj.(runtime.CacheableObject); ok {
				obj = shared.GetObject() // the watch cache wraps what goes to several watchers
			}
			if ns, ok := obj.(*corev1.Namespace); ok && e.Type != watch.Deleted {
				d.look(parent, ns)
			}
		}
	}
}

// look starts a worker for a terminating namespace that has none.
func (d *Deleter) look(ctx context.Context, ns *corev1.Namespace) {
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[ns.Name] {
		return
	}
	d.busy[ns.Name] = true
	d.workers.Add(1)
	go func() {
		defer d.workers.Done()
		if err := d.finish(ctx, ns.Name); err != nil && ctx.Err() == nil {
			d.cfg.Log.Warn("a namespace could not be emptied yet", "namespace", ns.Name, "error", err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, ns.Name)
	}()
}

// finish empties a namespace and takes its finalizer out.
func (d *Deleter) finish(ctx context.Context, name string) error {
	inside := genericrequest.WithNamespace(ctx, name)
	for {
		left, err := d.deleteContents(inside)
		if err != nil {
			return err
		}
		if left == nil {
			break
		}
		// Pods end gracefully, and finalizers are others' business: the deletion of any one is worth another look.
		if err := left.changed(inside); err != nil {
			return err
		}
	}
	_, _, err := d.cfg.Finalize.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, withoutFinalizer),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func withoutFinalizer(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
	ns := old.DeepCopyObject().(*corev1.Namespace)
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	return ns, nil
}

// remainder is a resource of which something is left in a namespace, as of a list's version.
type remainder struct {
	contents        Contents
	resourceVersion string
}

// deleteContents deletes all there is of all resources. It returns one of which something is left, or nil.
func (d *Deleter) deleteContents(ctx context.Context) (left *remainder, err error) {
	var errs []error
	for resource, c := range d.cfg.Contents {
		if _, err := c.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &metainternalversion.ListOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", resource, err))
			continue
		}
		list, err := c.List(ctx, &metainternalversion.ListOptions{})
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", resource, err))
			continue
		}
		if meta.LenList(list) > 0 {
			m, err := meta.ListAccessor(list)
			if err != nil {
				return nil, err
			}
			left = &remainder{contents: c, resourceVersion: m.GetResourceVersion()}
		}
	}
	return left, errors.Join(errs...)
}

// changed returns when an object of the resource was deleted after the list was made, or after relistInterval.
func (r *remainder) changed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, relistInterval)
	defer cancel()
	w, err := r.contents.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: r.resourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted || e.Type == watch.Error {
			return nil
		}
	}
	return nil
}
