package namespace

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validate(ns *corev1.Namespace) (errs field.ErrorList) {
	finalizers := field.NewPath("spec", "finalizers")
	for i, f := range ns.Spec.Finalizers {
		path := finalizers.Index(i)
		errs = append(errs, apivalidation.ValidateFinalizerName(string(f), path)...)
		// A name without a domain is reserved for the API's own (core/v1, FinalizerName).
		if !strings.Contains(string(f), "/") && f != corev1.FinalizerKubernetes {
			errs = append(errs, field.Invalid(path, f, "must be 'kubernetes' or have the form example.com/name"))
		}
	}
	return errs
}

func validateStatusUpdate(ns, _ *corev1.Namespace) (errs field.ErrorList) {
	phase := field.NewPath("status", "phase")
	want := corev1.NamespaceActive
	if ns.DeletionTimestamp != nil {
		want = corev1.NamespaceTerminating
	}
	if ns.Status.Phase != want {
		errs = append(errs, field.Invalid(phase, ns.Status.Phase, "must be '"+string(want)+"', which follows from `metadata.deletionTimestamp`"))
	}
	return errs
}
