package validation

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations tells what is wrong with those annotations of a pod, or of a template of pods, that say something of how it runs. path is where they stand.
func Annotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	if of, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), of, "must set spec.nodeName if mirror pod annotation is set"))
	}
	if cost, set := annotations[corev1.PodDeletionCost]; set && !deletionCost(cost) {
		errs = append(errs, field.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer"))
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
