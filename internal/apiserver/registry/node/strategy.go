package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod.dev/monopod/internal/apiserver/registry/base"
)

// strategy rules nodes themselves. A new node keeps the status that came with it, against the API conventions, because
// that is how kubelets have always registered: capacity, addresses and conditions in the very first request.
type strategy struct {
	base.Checked[*corev1.Node]
}

var (
	_ rest.RESTCreateStrategy  = strategy{}
	_ rest.RESTUpdateStrategy  = strategy{}
	_ rest.ResetFieldsStrategy = strategy{}
	_ base.PartStrategy        = statusStrategy{}
)

func newStrategy() strategy {
	return strategy{base.Checked[*corev1.Node]{Strategy: base.New(), OnCreate: validate, OnUpdate: validateUpdate}}
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Node).Status = old.(*corev1.Node).Status
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return base.Reset("v1", "status")
}

// statusStrategy rules nodes/status. Like the kubelet's own requests, it may change labels and annotations, too.
type statusStrategy struct{ strategy }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Node).Spec = old.(*corev1.Node).Spec
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return base.Reset("v1", "spec")
}
