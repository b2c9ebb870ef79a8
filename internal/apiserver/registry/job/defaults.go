package job

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods/defaults"
)

// defaultBackoffLimit is how often the pods of a job may fail.
const defaultBackoffLimit = 6

// setDefaults sets the defaults of a job. Its labels are those of its pods where it has none, the very same map: the labels that a job's pods get from the
// server (generateSelector) are the job's, too.
func setDefaults(j *batchv1.Job) {
	spec := &j.Spec
	if spec.Parallelism == nil {
		if spec.Completions == nil {
			spec.Completions = new(int32(1))
		}
		spec.Parallelism = new(int32(1))
	}
	if spec.BackoffLimit == nil {
		spec.BackoffLimit = new(int32(defaultBackoffLimit))
		if spec.BackoffLimitPerIndex != nil {
			*spec.BackoffLimit = math.MaxInt32
		}
	}
	if len(j.Labels) == 0 && spec.Template.Labels != nil {
		j.Labels = spec.Template.Labels
	}
	if spec.CompletionMode == nil {
		spec.CompletionMode = new(batchv1.NonIndexedCompletion)
	}
	if spec.Suspend == nil {
		spec.Suspend = new(bool)
	}
	if spec.PodReplacementPolicy == nil {
		spec.PodReplacementPolicy = new(batchv1.TerminatingOrFailed)
		if spec.PodFailurePolicy != nil { // it has to know how a pod ends before there is another in its place
			*spec.PodReplacementPolicy = batchv1.Failed
		}
	}
	if spec.ManualSelector == nil {
		spec.ManualSelector = new(bool)
	}
	SpecDefaults(spec)
}

// SpecDefaults sets the defaults that the specification of a job has wherever it stands, in a job or in a cron job's template.
func SpecDefaults(spec *batchv1.JobSpec) {
	if spec.PodFailurePolicy != nil {
		for i := range spec.PodFailurePolicy.Rules {
			patterns := spec.PodFailurePolicy.Rules[i].OnPodConditions
			for p := range patterns {
				if patterns[p].Status == "" {
					patterns[p].Status = corev1.ConditionTrue
				}
			}
		}
	}
	defaults.Template(&spec.Template)
}
