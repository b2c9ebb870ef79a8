package validation

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// Annotations tells what is wrong with those annotations of a pod, or of a template of pods, that say something of how it runs. path is where they stand.
func Annotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	if of, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), of, "must set spec.nodeName if mirror pod annotation is set"))
	}
	if cost, set := annotations[corev1.PodDeletionCost]; set && !deletionCost(cost) {
		errs = append(errs, field.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer"))
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		if _, c := pods.ContainerNamed(spec, name); c == nil {
			errs = append(errs, field.Invalid(path.Key(key), name, "container not found"))
		}
		if profile := annotations[key]; profile != "" && pods.AppArmorOf(profile) == nil {
			errs = append(errs, field.Invalid(path.Key(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile)))
		}
	}
	return errs
}

// deletionCost says whether text is a cost as people write it, so that one that looks like another number is not taken for none.
func deletionCost(text string) bool {
	n, err := strconv.ParseInt(text, 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == text
}

// AnnotationsUpdate is Annotations of a pod that there is already. What only its node or its creation says of it stays; what was wrong already is let be.
func AnnotationsUpdate(now, old map[string]string, spec *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	all := maps.Clone(old)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, now)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		what, kept := keptAnnotation(key)
		is, has := now[key]
		was, had := old[key]
		switch {
		case !kept || has == had && is == was:
		case had:
			errs = append(errs, field.Forbidden(path.Key(key), "may not remove or update "+what))
		default:
			errs = append(errs, field.Forbidden(path.Key(key), "may not add "+what))
		}
	}
	before := Annotations(old, spec, path)
	for _, e := range Annotations(now, spec, path) {
		if !slices.ContainsFunc(before, func(b *field.Error) bool { return reflect.DeepEqual(b, e) }) {
			errs = append(errs, e)
		}
	}
	return errs
}

// keptAnnotation is what an annotation is called that a pod has from its creation or not at all.
func keptAnnotation(key string) (what string, kept bool) {
	switch {
	case key == corev1.MirrorPodAnnotationKey:
		return "mirror pod annotation", true
	case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
		return "AppArmor annotations", true
	}
	return "", false
}

// The annotations that Kubernetes once had for what are fields now. Nothing goes by them but by AppArmor's, which the fields of a new pod are made of.
const (
	seccompOfPod       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompOfContainer = "container.seccomp.security.alpha.kubernetes.io/"
)

// annotationWarnings tells of annotations that have no effect, or another field in their place. template says that they are a template's, whose fields are not
// made of them before there is a pod.
func annotationWarnings(annotations map[string]string, spec *corev1.PodSpec, path *field.Path, template bool) (list []string) {
	tell := func(key, what string) {
		if _, set := annotations[key]; set {
			list = append(list, path.Key(key).String()+": "+what)
		}
	}
	tell("scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`)
	tell("security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`)
	tell("security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`)
	const seccomp = `non-functional in v1.27+; use the "seccompProfile" field instead`
	confined := spec.SecurityContext != nil && spec.SecurityContext.AppArmorProfile != nil
	if spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile == nil {
		tell(seccompOfPod, seccomp)
	}
	for _, c := range pods.Containers(spec) {
		if c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil {
			tell(seccompOfContainer+c.Name, seccomp)
		}
		if template && !confined && (c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil) {
			tell(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name, AppArmorDeprecated)
		}
	}
	return list
}

// AppArmorDeprecated is what is said of the annotation by which AppArmor was asked for.
const AppArmorDeprecated = `deprecated since v1.30; use the "appArmorProfile" field instead`
