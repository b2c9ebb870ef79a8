package base

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Checked is a Strategy for objects of type T that two functions check.
type Checked[T runtime.Object] struct {
	Strategy
	// Namespaced: the objects are in namespaces.
	Namespaced bool
	// OnCreate checks a new object, OnUpdate one that replaces old.
	OnCreate func(obj T) field.ErrorList
	OnUpdate func(obj, old T) field.ErrorList
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (c Checked[T]) NamespaceScoped() bool { return c.Namespaced }

// Validate implements rest.RESTCreateStrategy.
func (c Checked[T]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return c.OnCreate(obj.(T))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (c Checked[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return c.OnUpdate(obj.(T), old.(T))
}
