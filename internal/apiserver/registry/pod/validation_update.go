package pod

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

// mutableFields is what the error about an immutable field tells to be mutable.
const mutableFields = "pod updates may not change fields other than `spec.containers[*].image`, " +
	"`spec.initContainers[*].image`, `spec.activeDeadlineSeconds` and `spec.tolerations` (only additions)"

// validatePod tells what is wrong with a pod that a client wants to create.
func validatePod(pod *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validation.Spec(&pod.Spec, field.NewPath("spec"))...)
}

// validatePodUpdate tells what is wrong with a change of a pod's metadata and spec.
func validatePodUpdate(newPod, oldPod *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := apivalidation.ValidateObjectMetaUpdate(&newPod.ObjectMeta, &oldPod.ObjectMeta, field.NewPath("metadata"))
	if apiequality.Semantic.DeepEqual(newPod.Spec, oldPod.Spec) {
		return errs
	}
	errs = append(errs, validateImageUpdate(newPod.Spec.Containers, oldPod.Spec.Containers, spec.Child("containers"))...)
	errs = append(errs, validateImageUpdate(newPod.Spec.InitContainers, oldPod.Spec.InitContainers, spec.Child("initContainers"))...)
	errs = append(errs, validateDeadlineUpdate(newPod.Spec.ActiveDeadlineSeconds, oldPod.Spec.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds"))...)
	errs = append(errs, validateTolerationsUpdate(newPod.Spec.Tolerations, oldPod.Spec.Tolerations, spec.Child("tolerations"))...)
	return append(errs, validateImmutable(&newPod.Spec, &oldPod.Spec, spec)...)
}

func validateImageUpdate(newList, oldList []corev1.Container, at *field.Path) field.ErrorList {
	if len(newList) != len(oldList) {
		return field.ErrorList{field.Forbidden(at, "pod updates may not add or remove containers")}
	}
	var errs field.ErrorList
	for i := range newList {
		if newList[i].Image != oldList[i].Image {
			errs = append(errs, validation.Image(newList[i].Image, at.Index(i).Child("image"))...)
		}
	}
	return errs
}

// validateDeadlineUpdate lets a deadline be set, or be moved nearer.
func validateDeadlineUpdate(newDeadline, oldDeadline *int64, at *field.Path) field.ErrorList {
	switch {
	case newDeadline == nil && oldDeadline == nil:
		return nil
	case newDeadline == nil:
		return field.ErrorList{field.Invalid(at, nil, "must not update from a positive integer to nil value")}
	case *newDeadline < 1:
		return field.ErrorList{field.Invalid(at, *newDeadline, "must be greater than 0")}
	case oldDeadline != nil && *newDeadline > *oldDeadline:
		return field.ErrorList{field.Invalid(at, *newDeadline, fmt.Sprintf("must be less than or equal to previous value of %d", *oldDeadline))}
	default:
		return nil
	}
}

func validateTolerationsUpdate(newList, oldList []corev1.Toleration, at *field.Path) field.ErrorList {
	for i := range oldList {
		kept := slices.ContainsFunc(newList, func(t corev1.Toleration) bool { return t.MatchToleration(&oldList[i]) })
		if !kept {
			return field.ErrorList{field.Forbidden(at, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return validation.Tolerations(newList, at)
}

// validateImmutable names the fields of the spec that were changed beside the mutable ones.
func validateImmutable(newSpec, oldSpec *corev1.PodSpec, at *field.Path) field.ErrorList {
	wanted := newSpec.DeepCopy()
	wanted.ActiveDeadlineSeconds = oldSpec.ActiveDeadlineSeconds
	wanted.Tolerations = oldSpec.Tolerations
	wanted.Containers = withImagesOf(wanted.Containers, oldSpec.Containers)
	wanted.InitContainers = withImagesOf(wanted.InitContainers, oldSpec.InitContainers)

	var errs field.ErrorList
	newValue, oldValue := reflect.ValueOf(wanted).Elem(), reflect.ValueOf(oldSpec).Elem()
	for i := range newValue.NumField() {
		if apiequality.Semantic.DeepEqual(newValue.Field(i).Interface(), oldValue.Field(i).Interface()) {
			continue
		}
		name, _, _ := strings.Cut(newValue.Type().Field(i).Tag.Get("json"), ",")
		errs = append(errs, field.Forbidden(at.Child(name), mutableFields))
	}
	return errs
}

// withImagesOf returns containers with the images of old; old itself where the numbers differ, which validateImageUpdate
// has reported.
func withImagesOf(containers, old []corev1.Container) []corev1.Container {
	if len(containers) != len(old) {
		return old
	}
	for i := range containers {
		containers[i].Image = old[i].Image
	}
	return containers
}

// validateStatusUpdate tells what is wrong with a change of a pod's status.
func validateStatusUpdate(newPod, oldPod *corev1.Pod) field.ErrorList {
	at := field.NewPath("status")
	errs := apivalidation.ValidateObjectMetaUpdate(&newPod.ObjectMeta, &oldPod.ObjectMeta, field.NewPath("metadata"))
	status := &newPod.Status
	phases := []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}
	if !slices.Contains(phases, status.Phase) {
		errs = append(errs, field.NotSupported(at.Child("phase"), status.Phase, phases[1:]))
	}
	if status.QOSClass != oldPod.Status.QOSClass {
		errs = append(errs, field.Invalid(at.Child("qosClass"), status.QOSClass, apivalidation.FieldImmutableErrorMsg))
	}
	if status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(at.Child("observedGeneration"), status.ObservedGeneration, "must be a non-negative integer"))
	}
	for i, ip := range status.PodIPs {
		errs = append(errs, validateAddress(ip.IP, at.Child("podIPs").Index(i))...)
	}
	for i, ip := range status.HostIPs {
		errs = append(errs, validateAddress(ip.IP, at.Child("hostIPs").Index(i))...)
	}
	if oldPod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return errs
	}
	return append(errs, validateNoRestart(status.ContainerStatuses, oldPod.Status.ContainerStatuses,
		oldPod.Spec.RestartPolicy, at.Child("containerStatuses"))...)
}

func validateAddress(ip string, at *field.Path) field.ErrorList {
	if _, err := netip.ParseAddr(ip); err != nil {
		return field.ErrorList{field.Invalid(at, ip, "must be an IP address")}
	}
	return nil
}

// validateNoRestart refuses that a container comes back to life which the restart policy leaves dead.
func validateNoRestart(newList, oldList []corev1.ContainerStatus, policy corev1.RestartPolicy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range oldList {
		ended := oldList[i].State.Terminated
		if ended == nil || (ended.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure) {
			continue
		}
		for j := range newList {
			if newList[j].Name == oldList[i].Name && newList[j].State.Terminated == nil {
				errs = append(errs, field.Forbidden(at.Index(j).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}
