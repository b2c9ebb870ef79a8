package pod

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/validation"
)

// strategy rules the creation, the update and the deletion of pods.
type strategy struct {
	resource.Plain
}

var (
	_ rest.RESTCreateStrategy         = strategy{}
	_ rest.RESTUpdateStrategy         = strategy{}
	_ rest.RESTGracefulDeleteStrategy = strategy{}
	_ rest.ResetFieldsStrategy        = strategy{}
)

func newStrategy() strategy {
	return strategy{Plain: resource.NewPlain()}
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (strategy) NamespaceScoped() bool { return true }

// PrepareForCreate implements rest.RESTCreateStrategy: whatever status the client sent is replaced by that of a pod
// that nobody has looked at yet, and its selectors get what it asks for by the keys of its labels.
func (strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	pod := obj.(*corev1.Pod)
	pod.Generation = 1
	pod.Status = corev1.PodStatus{
		Phase:    corev1.PodPending,
		QOSClass: pods.QOSClass(&pod.Spec),
	}
	applyLabelKeys(pod)
	adoptAppArmor(ctx, pod)
	if len(pod.Spec.SchedulingGates) > 0 { // no binder looks at it, so nobody else would say so
		pods.SetCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"}, time.Now())
	}
}

// adoptAppArmor makes fields of the annotations by which AppArmor was once asked for, and tells who writes them still.
func adoptAppArmor(ctx context.Context, pod *corev1.Pod) {
	for _, key := range pods.AdoptAppArmor(pod, validation.UsableAppArmor) {
		warning.AddWarning(ctx, "", fmt.Sprintf("%s: %s", annotations().Key(key), validation.AppArmorDeprecated))
	}
}

// Validate implements rest.RESTCreateStrategy.
func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validatePod(obj.(*corev1.Pod))
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return validation.Warnings(obj.(*corev1.Pod))
}

// PrepareForUpdate implements rest.RESTUpdateStrategy: the status is not changed by this way, and a change of the spec
// makes a new generation.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newPod, oldPod := obj.(*corev1.Pod), old.(*corev1.Pod)
	newPod.Status = oldPod.Status
	setGeneration(newPod, oldPod)
}

// setGeneration: a change of the spec makes a new generation.
func setGeneration(newPod, oldPod *corev1.Pod) {
	if !apiequality.Semantic.DeepEqual(newPod.Spec, oldPod.Spec) {
		newPod.Generation = oldPod.Generation + 1
	}
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validatePodUpdate(obj.(*corev1.Pod), old.(*corev1.Pod))
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resource.Reset("v1", "status")
}

// statusStrategy rules updates through pods/status.
type statusStrategy struct{ strategy }

var (
	_ rest.RESTUpdateStrategy  = statusStrategy{}
	_ rest.ResetFieldsStrategy = statusStrategy{}
)

// PrepareForUpdate implements rest.RESTUpdateStrategy: the spec and the owners are not changed by this way.
func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newPod, oldPod := obj.(*corev1.Pod), old.(*corev1.Pod)
	newPod.Spec = oldPod.Spec
	newPod.DeletionTimestamp = oldPod.DeletionTimestamp
	newPod.OwnerReferences = oldPod.OwnerReferences
	if newPod.Status.QOSClass == "" {
		newPod.Status.QOSClass = oldPod.Status.QOSClass
	}
	syncAddresses(&newPod.Status)
	keepGenerations(&newPod.Status, &oldPod.Status)
}

// keepGenerations: a writer that does not know observedGeneration does not take it away, neither that of the status nor that of a condition.
func keepGenerations(status, old *corev1.PodStatus) {
	if status.ObservedGeneration == 0 {
		status.ObservedGeneration = old.ObservedGeneration
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		before := slices.IndexFunc(old.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		if c.ObservedGeneration == 0 && before >= 0 {
			c.ObservedGeneration = old.Conditions[before].ObservedGeneration
		}
	}
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateStatusUpdate(obj.(*corev1.Pod), old.(*corev1.Pod))
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		"v1": fieldpath.NewSet(
			fieldpath.MakePathOrDie("spec"),
			fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
			fieldpath.MakePathOrDie("metadata", "ownerReferences"),
		),
	}
}

// syncAddresses keeps the older single address fields equal to the first of the lists, as the API promises. A writer
// that knows only one of the two forms is understood. Where both are given and differ, the writer knows only the single
// form, and has patched it beside a list that it does not see.
func syncAddresses(status *corev1.PodStatus) {
	if ip := status.PodIP; ip != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != ip) {
		status.PodIPs = []corev1.PodIP{{IP: ip}}
	} else if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	if ip := status.HostIP; ip != "" && (len(status.HostIPs) == 0 || status.HostIPs[0].IP != ip) {
		status.HostIPs = []corev1.HostIP{{IP: ip}}
	} else if len(status.HostIPs) > 0 {
		status.HostIP = status.HostIPs[0].IP
	}
}
