package lease

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/base"
)

type strategy struct{ base.Strategy }

var (
	_ rest.RESTCreateStrategy = strategy{}
	_ rest.RESTUpdateStrategy = strategy{}
)

// NamespaceScoped implements rest.RESTCreateStrategy.
func (strategy) NamespaceScoped() bool { return true }

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy: a holder may PUT its lease without asking first.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy: a lease is a lock, so an update names what it replaces.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// Validate implements rest.RESTCreateStrategy.
func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validate(obj.(*coordinationv1.Lease))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateUpdate(obj.(*coordinationv1.Lease), old.(*coordinationv1.Lease))
}
