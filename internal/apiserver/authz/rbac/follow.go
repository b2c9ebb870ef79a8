package rbac

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/wait"
)

// Storage is what is read of a resource.
type Storage interface {
	rest.Lister
	rest.Watcher
}

// Storages are those of the four resources.
type Storages struct {
	Roles, RoleBindings, ClusterRoles, ClusterRoleBindings Storage
}

// retryInterval is between two attempts to read a resource that fail.
const retryInterval = time.Second

// Run reads the resources, and what changes in them, until ctx ends. It is called once.
func (p *Policy) Run(ctx context.Context, storages Storages) {
	ctx = genericrequest.WithNamespace(ctx, "")
	var all, first sync.WaitGroup
	for resource, storage := range map[string]Storage{
		"roles": storages.Roles, "rolebindings": storages.RoleBindings,
		"clusterroles": storages.ClusterRoles, "clusterrolebindings": storages.ClusterRoleBindings,
	} {
		first.Add(1)
		f := &follower{policy: p, resource: resource, storage: storage, listed: sync.OnceFunc(first.Done)}
		all.Go(func() {
			defer f.listed()
			f.run(ctx)
		})
	}
	first.Wait()
	if ctx.Err() == nil {
		close(p.synced)
	}
	all.Wait()
}

// Synced is closed when all resources have been read.
func (p *Policy) Synced() <-chan struct{} { return p.synced }

// follower keeps one resource's part of the policy.
type follower struct {
	policy   *Policy
	resource string
	storage  Storage
	listed   func()
	// has are the objects that there were, so that a list shows which have gone.
	has map[key]bool
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		f.policy.log.Warn("reading roles and bindings failed; trying again", "resource", f.resource, "error", err)
		_ = wait.For(ctx, retryInterval) // its end is the loop's
	}
}

// follow lists the resource and watches it until the watch ends.
func (f *follower) follow(ctx context.Context) error {
	list, err := f.storage.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return fmt.Errorf("list %s: %w", f.resource, err)
	}
	version, err := f.replace(list)
	if err != nil {
		return fmt.Errorf("list %s: %w", f.resource, err)
	}
	f.listed()
	w, err := f.storage.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: version})
	if err != nil {
		return fmt.Errorf("watch %s: %w", f.resource, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Error:
			return fmt.Errorf("watch %s: %w", f.resource, apierrors.FromObject(e.Object))
		case watch.Bookmark:
			continue
		}
		if err := f.apply(resource.Watched(e.Object), e.Type == watch.Deleted); err != nil {
			return fmt.Errorf("watch %s: %w", f.resource, err)
		}
	}
	return nil
}

// replace puts a list in the place of all that was known of the resource.
func (f *follower) replace(list runtime.Object) (version string, err error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	f.policy.mu.Lock()
	defer f.policy.mu.Unlock()
	gone := f.has
	f.has = make(map[key]bool, meta.LenList(list))
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		at, err := f.set(obj)
		delete(gone, at)
		f.has[at] = true
		return err
	}); err != nil {
		return "", err
	}
	for at := range gone {
		f.drop(at)
	}
	f.policy.reached(f.resource, revision(m.GetResourceVersion()))
	return m.GetResourceVersion(), nil
}

// apply changes what is known of an object.
func (f *follower) apply(obj runtime.Object, deleted bool) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	f.policy.mu.Lock()
	defer f.policy.mu.Unlock()
	at := key{m.GetNamespace(), m.GetName()}
	if deleted {
		f.drop(at)
		delete(f.has, at)
	} else {
		if _, err := f.set(obj); err != nil {
			return err
		}
		f.has[at] = true
	}
	f.policy.reached(f.resource, revision(m.GetResourceVersion()))
	return nil
}

// set takes over an object, which nobody changes any more. It needs the policy's lock.
func (f *follower) set(obj runtime.Object) (at key, err error) {
	switch o := obj.(type) {
	case *rbacv1.Role:
		at = key{o.Namespace, o.Name}
		f.policy.setRole(at, o.Rules)
	case *rbacv1.ClusterRole:
		at = key{"", o.Name}
		f.policy.setRole(at, o.Rules)
	case *rbacv1.RoleBinding:
		at = key{o.Namespace, o.Name}
		f.policy.setBinding(&binding{key: at, role: o.RoleRef, subjects: o.Subjects})
	case *rbacv1.ClusterRoleBinding:
		at = key{"", o.Name}
		f.policy.setBinding(&binding{key: at, role: o.RoleRef, subjects: o.Subjects})
	default:
		return at, fmt.Errorf("an object of type %T among %s", obj, f.resource)
	}
	return at, nil
}

// drop forgets an object. It needs the policy's lock.
func (f *follower) drop(at key) {
	switch f.resource {
	case "roles", "clusterroles":
		f.policy.dropRole(at)
	default:
		f.policy.dropBinding(at)
	}
}

// revision is a resourceVersion as a number; one that is none is before all.
func revision(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}
