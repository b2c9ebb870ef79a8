package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

// validateUpdate tells what is wrong with a job that replaces old.
func validateUpdate(j, old *batchv1.Job) field.ErrorList {
	spec, was, path := &j.Spec, &old.Spec, field.NewPath("spec")
	_, named := was.Template.Labels[batchv1.JobNameLabel]
	_, owned := was.Template.Labels[batchv1.ControllerUidLabel]
	errs := validateJob(j, named && owned)
	errs = append(errs, workload.ValidatePods(&spec.Template, &was.Template, templatePath())...)
	for _, f := range []struct {
		name     string
		now, was any
	}{
		{"selector", spec.Selector, was.Selector},
		{"completionMode", spec.CompletionMode, was.CompletionMode},
		{"podFailurePolicy", spec.PodFailurePolicy, was.PodFailurePolicy},
		{"backoffLimitPerIndex", spec.BackoffLimitPerIndex, was.BackoffLimitPerIndex},
		{"managedBy", spec.ManagedBy, was.ManagedBy},
		{"successPolicy", spec.SuccessPolicy, was.SuccessPolicy},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.now, f.was, path.Child(f.name))...)
	}
	errs = append(errs, validateCompletionsUpdate(spec, was, path.Child("completions"))...)
	return append(errs, validateTemplateUpdate(j, old)...)
}

// validateCompletionsUpdate: a job whose pods have indexes can get more or fewer of them, all at once.
func validateCompletionsUpdate(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch {
	case !isIndexed(spec):
		return apivalidation.ValidateImmutableField(spec.Completions, old.Completions, path)
	case spec.Completions == nil || ptr.Equal(spec.Completions, old.Completions): // nil is refused already
		return nil
	case *spec.Completions != ptr.Deref(spec.Parallelism, 0):
		return field.ErrorList{field.Invalid(path, *spec.Completions, "can only be modified in tandem with spec.parallelism")}
	}
	return nil
}

// validateTemplateUpdate: the pods of a job are all made the same way. While it is suspended and none of them runs, it can be said anew where they run and
// what resources they have: that is how a queue of jobs starts one where there is room.
func validateTemplateUpdate(j, old *batchv1.Job) field.ErrorList {
	template, was, path := &j.Spec.Template, &old.Spec.Template, templatePath()
	if !resting(old) {
		return apivalidation.ValidateImmutableField(template, was, path)
	}
	was = was.DeepCopy()
	allowPlace(&was.Spec, &template.Spec)
	allowResources(was.Spec.Containers, template.Spec.Containers)
	allowResources(was.Spec.InitContainers, template.Spec.InitContainers)
	return apivalidation.ValidateImmutableField(template.Spec, was.Spec, path.Child("spec"))
}

// resting: the job is suspended, and has no pods, or none any more.
func resting(j *batchv1.Job) bool {
	return ptr.Deref(j.Spec.Suspend, false) && j.Status.Active == 0 && (j.Status.StartTime == nil || is(j, batchv1.JobSuspended))
}

// allowPlace gives old what spec says of the nodes for the pod.
func allowPlace(old, spec *corev1.PodSpec) {
	switch {
	case spec.Affinity != nil && old.Affinity != nil:
		old.Affinity.NodeAffinity = spec.Affinity.NodeAffinity
	case spec.Affinity != nil:
		old.Affinity = &corev1.Affinity{NodeAffinity: spec.Affinity.NodeAffinity}
	case old.Affinity != nil:
		if old.Affinity.NodeAffinity = nil; *old.Affinity == (corev1.Affinity{}) {
			old.Affinity = nil
		}
	}
	old.NodeSelector, old.Tolerations, old.SchedulingGates = spec.NodeSelector, spec.Tolerations, spec.SchedulingGates
}

// allowResources gives the old containers the resources of those of the same names, where they are as many.
func allowResources(old, containers []corev1.Container) {
	if len(old) != len(containers) {
		return
	}
	for i := range old {
		if old[i].Name == containers[i].Name {
			old[i].Resources = containers[i].Resources
		}
	}
}
