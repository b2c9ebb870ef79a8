package rbac

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// REST is the storage of one of the resources: the library's, with a guard before its writes.
type REST struct {
	*genericregistry.Store
	name  string
	check check
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// guarded makes the storage of a resource whose writers are checked, and answered when what they wrote is in force.
func guarded(check check, name string, policy Policy) func(*genericregistry.Store) rest.Storage {
	return func(store *genericregistry.Store) rest.Storage {
		await := func(obj runtime.Object) {
			if m, err := meta.Accessor(obj); err == nil {
				policy.Await(name, m.GetResourceVersion())
			}
		}
		store.AfterCreate = func(obj runtime.Object, _ *metav1.CreateOptions) { await(obj) }
		store.AfterUpdate = func(obj runtime.Object, _ *metav1.UpdateOptions) { await(obj) }
		store.AfterDelete = func(obj runtime.Object, _ *metav1.DeleteOptions) { await(obj) }
		return &REST{Store: store, name: name, check: check}
	}
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := r.check.refuse(ctx, r.name, obj, nil); err != nil {
		return nil, err
	}
	return r.Store.Create(ctx, obj, validate, options)
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	info = rest.WrapUpdatedObjectInfo(info, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		return obj, r.check.refuse(ctx, r.name, obj, old)
	})
	return r.Store.Update(ctx, name, info, create, update, forceCreate, options)
}
