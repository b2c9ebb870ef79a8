package bootstrap

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// Storages are those of the four resources.
type Storages struct {
	Roles, RoleBindings, ClusterRoles, ClusterRoleBindings rest.StandardStorage
}

// parallel is how many objects are written at a time: the store puts those that come together on the disk together.
const parallel = 16

// Reconcile brings what is stored up to the policy, and tells how many objects it wrote. What is right already is not written.
func (p Policy) Reconcile(ctx context.Context, storages Storages) (written int, err error) {
	// The guard of the resources lets these pass.
	ctx = genericrequest.WithUser(ctx, &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}})
	var writes atomic.Int64
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallel)
	each := func(storage rest.StandardStorage, objects []runtime.Object) error {
		stored, err := list(ctx, storage)
		if err != nil {
			return err
		}
		for _, obj := range objects {
			m, err := meta.Accessor(obj)
			if err != nil {
				return err
			}
			at := key{m.GetNamespace(), m.GetName()}
			o := &one{ctx: genericrequest.WithNamespace(ctx, at.namespace), storage: storage, stored: stored[at], writes: &writes}
			work.Go(func() error {
				if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return o.reconcile(obj) }); err != nil {
					return fmt.Errorf("make %T %s: %w", obj, at.name, err)
				}
				return nil
			})
		}
		return nil
	}
	for _, kind := range []struct {
		storage rest.StandardStorage
		objects []runtime.Object
	}{
		{storages.ClusterRoles, objects(p.ClusterRoles)}, {storages.ClusterRoleBindings, objects(p.ClusterRoleBindings)},
		{storages.Roles, objects(p.Roles)}, {storages.RoleBindings, objects(p.RoleBindings)},
	} {
		if err = each(kind.storage, kind.objects); err != nil {
			break
		}
	}
	if failed := work.Wait(); failed != nil {
		err = failed
	}
	return int(writes.Load()), err
}

func objects[T runtime.Object](all []T) []runtime.Object {
	made := make([]runtime.Object, 0, len(all))
	for _, obj := range all {
		made = append(made, obj)
	}
	return made
}

type key struct{ namespace, name string }

// list are the stored objects.
func list(ctx context.Context, storage rest.Lister) (map[key]runtime.Object, error) {
	all, err := storage.List(genericrequest.WithNamespace(ctx, ""), &metainternalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	stored := map[key]runtime.Object{}
	return stored, meta.EachListItem(all, func(obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		if err == nil {
			stored[key{m.GetNamespace(), m.GetName()}] = obj
		}
		return err
	})
}

// reconcile compares and writes one object.
func (o *one) reconcile(obj runtime.Object) (err error) {
	switch obj := obj.(type) {
	case *rbacv1.ClusterRole:
		expected := obj.DeepCopy()
		if expected.AggregationRule != nil {
			// Its rules are the controller's to say, once it exists.
			expected.Rules = nil
		}
		_, err = (&reconciliation.ReconcileRoleOptions{
			Role: reconciliation.ClusterRoleRuleOwner{ClusterRole: expected}, Confirm: true, Client: roles{o, obj},
		}).Run()
	case *rbacv1.Role:
		_, err = (&reconciliation.ReconcileRoleOptions{
			Role: reconciliation.RoleRuleOwner{Role: obj.DeepCopy()}, Confirm: true, Client: roles{o, obj},
		}).Run()
	case *rbacv1.ClusterRoleBinding:
		_, err = (&reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: obj.DeepCopy()}, Confirm: true, Client: bindings{o},
		}).Run()
	case *rbacv1.RoleBinding:
		_, err = (&reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.RoleBindingAdapter{RoleBinding: obj.DeepCopy()}, Confirm: true, Client: bindings{o},
		}).Run()
	default:
		err = fmt.Errorf("an object of type %T", obj)
	}
	return err
}
