package bootstrap

import (
	"context"
	"fmt"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// one is the place of one object in its storage.
type one struct {
	ctx     context.Context
	storage rest.StandardStorage
	// stored is the object as a list had it, which is believed once; nil: it was not there.
	stored   runtime.Object
	believed bool
	writes   *atomic.Int64
}

func (o *one) get(name string) (runtime.Object, error) {
	if o.believed {
		return o.storage.Get(o.ctx, name, &metav1.GetOptions{})
	}
	o.believed = true
	if o.stored == nil {
		return nil, apierrors.NewNotFound(rbacv1.Resource("objects"), name)
	}
	return o.stored, nil
}

func (o *one) create(obj resource.Object) (runtime.Object, error) {
	o.writes.Add(1)
	// The handlers of requests do this for the others' objects.
	rest.FillObjectMetaSystemFields(obj)
	return o.storage.Create(o.ctx, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
}

func (o *one) update(obj resource.Object) (runtime.Object, error) {
	o.writes.Add(1)
	updated, _, err := o.storage.Update(o.ctx, obj.GetName(), rest.DefaultUpdatedObjectInfo(obj),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return updated, err
}

func (o *one) remove(name string, uid types.UID) error {
	o.writes.Add(1)
	_, _, err := o.storage.Delete(o.ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	return err
}

// roles are a role's place as the library of reconciliation wants it.
type roles struct {
	*one
	// whole is the role as it is made; afterwards less may be expected of it.
	whole resource.Object
}

var _ reconciliation.RuleOwnerModifier = roles{}

// Get implements reconciliation.RuleOwnerModifier.
func (r roles) Get(_, name string) (reconciliation.RuleOwner, error) { return roleOf(r.get(name)) }

// Create implements reconciliation.RuleOwnerModifier.
func (r roles) Create(reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return roleOf(r.create(r.whole.DeepCopyObject().(resource.Object)))
}

// Update implements reconciliation.RuleOwnerModifier.
func (r roles) Update(role reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return roleOf(r.update(role.GetObject().(resource.Object)))
}

func roleOf(obj runtime.Object, err error) (reconciliation.RuleOwner, error) {
	if err != nil {
		return nil, err
	}
	switch role := obj.(type) {
	case *rbacv1.ClusterRole:
		return reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, nil
	case *rbacv1.Role:
		return reconciliation.RoleRuleOwner{Role: role}, nil
	}
	return nil, fmt.Errorf("an object of type %T in the place of a role", obj)
}

// bindings are a binding's place as the library of reconciliation wants it.
type bindings struct{ *one }

var _ reconciliation.RoleBindingModifier = bindings{}

// Get implements reconciliation.RoleBindingModifier.
func (b bindings) Get(_, name string) (reconciliation.RoleBinding, error) {
	return bindingOf(b.get(name))
}

// Create implements reconciliation.RoleBindingModifier.
func (b bindings) Create(binding reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return bindingOf(b.create(binding.GetObject().(resource.Object)))
}

// Update implements reconciliation.RoleBindingModifier.
func (b bindings) Update(binding reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return bindingOf(b.update(binding.GetObject().(resource.Object)))
}

// Delete implements reconciliation.RoleBindingModifier.
func (b bindings) Delete(_, name string, uid types.UID) error { return b.remove(name, uid) }

func bindingOf(obj runtime.Object, err error) (reconciliation.RoleBinding, error) {
	if err != nil {
		return nil, err
	}
	switch binding := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding}, nil
	case *rbacv1.RoleBinding:
		return reconciliation.RoleBindingAdapter{RoleBinding: binding}, nil
	}
	return nil, fmt.Errorf("an object of type %T in the place of a binding", obj)
}
