package job

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// The labels that tell whose pod it is, from before there were prefixes.
const (
	legacyNameLabel = "job-name"
	legacyUIDLabel  = "controller-uid"
)

// generateSelector gives the job's pods labels that no other pods have, and the job a selector of them, unless its maker sees to both. Where there is
// something else already it stays, and is refused.
func generateSelector(j *batchv1.Job) {
	if ptr.Deref(j.Spec.ManualSelector, false) {
		return
	}
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = map[string]string{}
	}
	for key, value := range ownLabels(j) {
		if _, ok := j.Spec.Template.Labels[key]; !ok {
			j.Spec.Template.Labels[key] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

// ownLabels are those of the job's pods.
func ownLabels(j *batchv1.Job) labels.Set {
	return labels.Set{
		batchv1.JobNameLabel: j.Name, legacyNameLabel: j.Name,
		batchv1.ControllerUidLabel: string(j.UID), legacyUIDLabel: string(j.UID),
	}
}

// validateGenerated: the pods have the labels that generateSelector gives them, and the selector asks for nothing else. prefixed: they have those with
// the prefix, too, which those of jobs of old do not.
func validateGenerated(j *batchv1.Job, prefixed bool) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	own := ownLabels(j)
	if !prefixed {
		delete(own, batchv1.JobNameLabel)
		delete(own, batchv1.ControllerUidLabel)
	}
	at := field.NewPath("spec", "template", "metadata", "labels")
	for _, key := range []string{legacyUIDLabel, legacyNameLabel, batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		want, asked := own[key]
		got, ok := j.Spec.Template.Labels[key]
		switch {
		case !asked:
		case !ok:
			errs = append(errs, field.Required(at.Key(key), "must be "+want))
		case got != want:
			errs = append(errs, field.Invalid(at.Key(key), got, "must be "+want))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(own) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}
