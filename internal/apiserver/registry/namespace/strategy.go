package namespace

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod.dev/monopod/internal/apiserver/registry/base"
)

// strategy rules namespaces themselves: metadata may change, spec and status have writers of their own.
type strategy struct {
	base.Checked[*corev1.Namespace]
}

var (
	_ rest.RESTCreateStrategy  = strategy{}
	_ rest.RESTUpdateStrategy  = strategy{}
	_ rest.ResetFieldsStrategy = strategy{}
	_ base.PartStrategy        = statusStrategy{}
	_ base.PartStrategy        = finalizeStrategy{}
)

func newStrategy() strategy {
	return strategy{base.Checked[*corev1.Namespace]{Strategy: base.New(), OnCreate: validate, OnUpdate: validateUpdate}}
}

// PrepareForCreate implements rest.RESTCreateStrategy.
func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	ns := obj.(*corev1.Namespace)
	label(ns)
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	ns, o := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	ns.Spec, ns.Status = o.Spec, o.Status
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return base.Reset("v1", "status")
}

// statusStrategy rules namespaces/status.
type statusStrategy struct{ strategy }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	ns, o := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	ns.Spec = o.Spec
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateStatusUpdate(obj.(*corev1.Namespace), old.(*corev1.Namespace))
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return base.Reset("v1", "spec")
}

// finalizeStrategy rules namespaces/finalize, through which spec.finalizers changes.
type finalizeStrategy struct{ strategy }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	ns, o := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	ns.Status = o.Status
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (finalizeStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return base.Reset("v1", "status")
}
