package pod

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

// mutableFields is what the error about an immutable field tells to be mutable.
const mutableFields = "pod updates may not change fields other than `spec.containers[*].image`, " +
	"`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations), " +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative) and, while there are any, " +
	"`spec.schedulingGates` (only deletions), with additions to `spec.nodeSelector` and `spec.affinity.nodeAffinity`"

// longestNames is how long a pod's name and its namespace's may be together. With a UID, of 36 bytes, and what is between them they are the name of a
// directory on the pod's node.
const longestNames = 255 - 36 - 2

// validatePod tells what is wrong with a pod that a client wants to create.
func validatePod(pod *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if len(pod.Namespace)+len(pod.Name) > longestNames {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), pod.Name,
			fmt.Sprintf("must be no longer than %d bytes in the namespace %s: a node keeps the pod's logs in a directory called NAMESPACE_NAME_UID, and the name of a file has 255 at most", longestNames-len(pod.Namespace), pod.Namespace)))
	}
	errs = append(errs, validation.Annotations(pod.Annotations, &pod.Spec, annotations())...)
	errs = append(errs, validation.Spec(&pod.Spec, field.NewPath("spec"))...)
	return append(errs, validation.EphemeralClaims(pod, field.NewPath("spec", "volumes"))...)
}

func annotations() *field.Path { return field.NewPath("metadata", "annotations") }

// validateMetaUpdate tells what is wrong with a change of a pod's metadata.
func validateMetaUpdate(newPod, oldPod *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&newPod.ObjectMeta, &oldPod.ObjectMeta, field.NewPath("metadata"))
	return append(errs, validation.AnnotationsUpdate(newPod.Annotations, oldPod.Annotations, &newPod.Spec, annotations())...)
}

// validatePodUpdate tells what is wrong with a change of a pod's metadata and spec.
func validatePodUpdate(newPod, oldPod *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateMetaUpdate(newPod, oldPod)
	if apiequality.Semantic.DeepEqual(newPod.Spec, oldPod.Spec) {
		return errs
	}
	errs = append(errs, validateImageUpdate(newPod.Spec.Containers, oldPod.Spec.Containers, spec.Child("containers"))...)
	errs = append(errs, validateImageUpdate(newPod.Spec.InitContainers, oldPod.Spec.InitContainers, spec.Child("initContainers"))...)
	errs = append(errs, validateDeadlineUpdate(newPod.Spec.ActiveDeadlineSeconds, oldPod.Spec.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds"))...)
	errs = append(errs, validateTolerationsUpdate(newPod.Spec.Tolerations, oldPod.Spec.Tolerations, spec.Child("tolerations"))...)
	errs = append(errs, validateGatesUpdate(newPod.Spec.SchedulingGates, oldPod.Spec.SchedulingGates, spec.Child("schedulingGates"))...)
	if isGated(oldPod) {
		errs = append(errs, validatePlaceUpdate(&newPod.Spec, &oldPod.Spec, spec)...)
	}
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
	case *newDeadline < 1 || *newDeadline > math.MaxInt32:
		return field.ErrorList{field.Invalid(at, *newDeadline, utilvalidation.InclusiveRangeError(1, math.MaxInt32))}
	case oldDeadline != nil && *newDeadline > *oldDeadline:
		return field.ErrorList{field.Invalid(at, *newDeadline, "must be less than or equal to previous value")}
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
	wanted.SchedulingGates = oldSpec.SchedulingGates
	if was, is := oldSpec.TerminationGracePeriodSeconds, newSpec.TerminationGracePeriodSeconds; was != nil && *was < 0 && is != nil && *is == 1 {
		wanted.TerminationGracePeriodSeconds = was // it was taken for 1 all the time
	}
	if len(oldSpec.SchedulingGates) > 0 {
		wanted.NodeSelector, wanted.Affinity = oldSpec.NodeSelector, withNodesOf(wanted.Affinity, oldSpec.Affinity)
	}
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
