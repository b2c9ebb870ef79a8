// Package job serves the resource jobs of batch/v1 and its subresource status. What the templates of jobs have in common with jobs, cron jobs take from here.
package job

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource jobs.
func Resource() resource.Of[*batchv1.Job, *batchv1.JobList] {
	return resource.Of[*batchv1.Job, *batchv1.JobList]{
		Group:      batchv1.GroupName,
		Plural:     "jobs",
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[batchv1.Job](): apifields.All("Spec").And(apifields.Left, "Status"),
		}.With(SpecHonours()),
		Default:    setDefaults,
		Prepare:    generateSelector,
		Create:     validate,
		Update:     validateUpdate,
		Warn:       warn,
		WarnUpdate: warnUpdate,
		Generation: true,
		Status:     &resource.Status[*batchv1.Job]{Update: validateStatus},
		Orphans:    true,
		Fields: func(j *batchv1.Job) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
		},
		Columns: columns(),
		Row:     row,
		REST:    func(store *genericregistry.Store) rest.Storage { return &jobs{store} },
	}
}

// SpecHonours has the verdicts of a job's specification, wherever it stands. Those of the pod in it the pods' own table has.
func SpecHonours() apifields.Table {
	return apifields.Table{
		reflect.TypeFor[batchv1.JobSpec](): apifields.All("Parallelism", "Completions", "ActiveDeadlineSeconds", "PodFailurePolicy", "SuccessPolicy", "BackoffLimit",
			"BackoffLimitPerIndex", "MaxFailedIndexes", "Selector", "ManualSelector", "TTLSecondsAfterFinished", "CompletionMode", "Suspend", "PodReplacementPolicy", "ManagedBy").
			And(apifields.Left, "Template").And(apifields.Refused, "Scheduling"),
		reflect.TypeFor[batchv1.PodFailurePolicy]():                       apifields.All("Rules"),
		reflect.TypeFor[batchv1.PodFailurePolicyRule]():                   apifields.All("Action", "OnExitCodes", "OnPodConditions"),
		reflect.TypeFor[batchv1.PodFailurePolicyOnExitCodesRequirement](): apifields.All("ContainerName", "Operator", "Values"),
		reflect.TypeFor[batchv1.PodFailurePolicyOnPodConditionsPattern](): apifields.All("Type", "Status"),
		reflect.TypeFor[batchv1.SuccessPolicy]():                          apifields.All("Rules"),
		reflect.TypeFor[batchv1.SuccessPolicyRule]():                      apifields.All("SucceededIndexes", "SucceededCount"),
	}
}

func columns() []resource.Column[*batchv1.Job] {
	all := []resource.Column[*batchv1.Job]{
		{Name: "Name"},
		{Name: "Status", Doc: "Status of the job."},
		{Name: "Completions", Doc: batchv1.JobStatus{}.SwaggerDoc()["succeeded"]},
		{Name: "Duration", Doc: "Time required to complete the job."},
		{Name: "Age"},
	}
	all = append(all, workload.ContainerColumns(true, func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template })...)
	return append(all, resource.Column[*batchv1.Job]{Name: "Selector", Doc: batchv1.JobSpec{}.SwaggerDoc()["selector"], Wide: true})
}

func row(j *batchv1.Job, now time.Time) ([]any, []metav1.TableRowCondition) {
	containers := workload.ContainerCells(&j.Spec.Template)
	return []any{
		j.Name, state(j), completions(j), took(&j.Status, now), resource.Age(j.CreationTimestamp.Time, now),
		containers[0], containers[1], metav1.FormatLabelSelector(j.Spec.Selector),
	}, nil
}

// state is a word for what the job is at: the first of those that are true.
func state(j *batchv1.Job) string {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if is(j, t) {
			return string(t)
		}
	}
	if j.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if is(j, t) {
			return string(t)
		}
	}
	return "Running"
}

// completions are those that there are, of those that there have to be. Without a number any success completes the job.
func completions(j *batchv1.Job) string {
	if want := j.Spec.Completions; want != nil {
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *want)
	}
	if n := ptr.Deref(j.Spec.Parallelism, 0); n > 1 {
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, n)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

// took is how long the job has run.
func took(status *batchv1.JobStatus, now time.Time) string {
	if status.StartTime == nil {
		return ""
	}
	end := now
	if status.CompletionTime != nil {
		end = status.CompletionTime.Time
	}
	return duration.HumanDuration(end.Sub(status.StartTime.Time))
}

// is: the job's condition is True.
func is(j *batchv1.Job, t batchv1.JobConditionType) bool { return says(j, t, corev1.ConditionTrue) }

func says(j *batchv1.Job, t batchv1.JobConditionType, value corev1.ConditionStatus) bool {
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == t && c.Status == value {
			return true
		}
	}
	return false
}
