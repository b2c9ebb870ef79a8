// Package cronjob serves the resource cronjobs of batch/v1 and its subresource status.
package cronjob

import (
	"reflect"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/apiserver/registry/job"
	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// How many jobs that have ended are kept where nobody says.
const (
	defaultSuccessful = 3
	defaultFailed     = 1
)

// Resource is the resource cronjobs.
func Resource() resource.Of[*batchv1.CronJob, *batchv1.CronJobList] {
	return resource.Of[*batchv1.CronJob, *batchv1.CronJobList]{
		Group:      batchv1.GroupName,
		Plural:     "cronjobs",
		Short:      []string{"cj"},
		Categories: []string{"all"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[batchv1.CronJob](): apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[batchv1.CronJobSpec](): apifields.All("Schedule", "TimeZone", "StartingDeadlineSeconds", "ConcurrencyPolicy", "Suspend", "JobTemplate",
				"SuccessfulJobsHistoryLimit", "FailedJobsHistoryLimit"),
			reflect.TypeFor[batchv1.JobTemplateSpec](): apifields.All("Spec"),
		}.With(job.SpecHonours()),
		Default: setDefaults,
		Prepare: func(c *batchv1.CronJob) { delete(c.Annotations, scheduleSince) },
		PrepareUpdate: func(c, old *batchv1.CronJob) {
			keepSince(c, old, time.Now())
		},
		Create:     validate,
		Update:     validateUpdate,
		Warn:       warn,
		WarnUpdate: warnUpdate,
		Generation: true,
		Status: &resource.Status[*batchv1.CronJob]{
			Prepare: func(c, old *batchv1.CronJob) { keepSince(c, old, time.Now()) }, // the schedule is the old one here
		},
		Columns: columns(),
		Row:     row,
	}
}

func setDefaults(c *batchv1.CronJob) {
	spec := &c.Spec
	if spec.ConcurrencyPolicy == "" {
		spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	if spec.Suspend == nil {
		spec.Suspend = new(bool)
	}
	if spec.SuccessfulJobsHistoryLimit == nil {
		spec.SuccessfulJobsHistoryLimit = new(int32(defaultSuccessful))
	}
	if spec.FailedJobsHistoryLimit == nil {
		spec.FailedJobsHistoryLimit = new(int32(defaultFailed))
	}
	job.SpecDefaults(&spec.JobTemplate.Spec)
}

func columns() []resource.Column[*batchv1.CronJob] {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	all := []resource.Column[*batchv1.CronJob]{
		{Name: "Name"},
		{Name: "Schedule", Doc: spec["schedule"]},
		{Name: "Timezone", Doc: spec["timeZone"]},
		{Name: "Suspend", Type: "boolean", Doc: spec["suspend"]},
		{Name: "Active", Type: "integer", Doc: status["active"]},
		{Name: "Last Schedule", Doc: status["lastScheduleTime"]},
		{Name: "Age"},
	}
	all = append(all, workload.ContainerColumns(true, func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template })...)
	return append(all, resource.Column[*batchv1.CronJob]{Name: "Selector", Doc: batchv1.JobSpec{}.SwaggerDoc()["selector"], Wide: true})
}

func row(c *batchv1.CronJob, now time.Time) ([]any, []metav1.TableRowCondition) {
	suspend := resource.Unset
	switch s := c.Spec.Suspend; {
	case s == nil:
	case *s:
		suspend = "True"
	default:
		suspend = "False"
	}
	last := resource.None
	if t := c.Status.LastScheduleTime; t != nil {
		last = resource.Age(t.Time, now)
	}
	template := &c.Spec.JobTemplate.Spec
	containers := workload.ContainerCells(&template.Template)
	return []any{
		c.Name, c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, resource.None), suspend, int64(len(c.Status.Active)), last,
		resource.Age(c.CreationTimestamp.Time, now), containers[0], containers[1], metav1.FormatLabelSelector(template.Selector),
	}, nil
}
