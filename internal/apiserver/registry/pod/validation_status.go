package pod

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// validateStatusUpdate tells what is wrong with a change of a pod's status.
func validateStatusUpdate(newPod, oldPod *corev1.Pod) field.ErrorList {
	at := field.NewPath("status")
	errs := validateMetaUpdate(newPod, oldPod)
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
	if name := status.NominatedNodeName; name != oldPod.Status.NominatedNodeName && name != "" {
		for _, message := range utilvalidation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(at.Child("nominatedNodeName"), name, message))
		}
	}
	errs = append(errs, validateConditions(status.Conditions, at.Child("conditions"))...)
	return append(errs, validateRevivals(&oldPod.Spec, status, &oldPod.Status, at)...)
}

func validateConditions(conditions []corev1.PodCondition, at *field.Path) (errs field.ErrorList) {
	for i, c := range conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Index(i).Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer"))
		}
		for _, message := range utilvalidation.IsQualifiedName(string(c.Type)) {
			errs = append(errs, field.Invalid(at.Index(i).Child("type"), c.Type, message))
		}
	}
	return errs
}

func validateAddress(ip string, at *field.Path) field.ErrorList {
	if _, err := netip.ParseAddr(ip); err != nil {
		return field.ErrorList{field.Invalid(at, ip, "must be an IP address")}
	}
	return nil
}

// validateRevivals refuses that a container comes back to life which nothing starts again: neither its own rules or policy, nor those of the pod, nor
// another container whose end starts all of them. Of ephemeral containers none does.
func validateRevivals(spec *corev1.PodSpec, status, old *corev1.PodStatus, at *field.Path) (errs field.ErrorList) {
	refuse := func(newList, oldList []corev1.ContainerStatus, at *field.Path) {
		for i := range oldList {
			ended := oldList[i].State.Terminated
			j := slices.IndexFunc(newList, func(s corev1.ContainerStatus) bool { return s.Name == oldList[i].Name })
			if ended == nil || j < 0 || newList[j].State.Terminated != nil {
				continue
			}
			role, c := pods.ContainerNamed(spec, oldList[i].Name)
			if c == nil || role == pods.Ephemeral || !pods.Restarts(spec, c, ended.ExitCode) {
				errs = append(errs, field.Forbidden(at.Index(j).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	if !pods.MayRestartAll(spec) {
		refuse(status.ContainerStatuses, old.ContainerStatuses, at.Child("containerStatuses"))
		refuse(status.InitContainerStatuses, old.InitContainerStatuses, at.Child("initContainerStatuses"))
	}
	refuse(status.EphemeralContainerStatuses, old.EphemeralContainerStatuses, at.Child("ephemeralContainerStatuses"))
	return errs
}
