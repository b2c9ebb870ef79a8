package registry_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/cronjob"
	"monopod.dev/monopod/internal/apiserver/registry/job"
)

func TestTablesOfBatch(t *testing.T) {
	born := metav1.NewTime(time.Now().Add(-3*time.Hour - time.Second))
	minute := metav1.NewTime(born.Add(time.Minute))
	meta := metav1.ObjectMeta{Name: "x", CreationTimestamp: born}
	leaving := meta
	leaving.DeletionTimestamp = &born
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "i:1"}, {Name: "b", Image: "j"}}}}
	spec := batchv1.JobSpec{Completions: new(int32(3)), Template: pod, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"k": "v"}}}
	in := func(types ...batchv1.JobConditionType) (status batchv1.JobStatus) {
		for _, t := range types {
			status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue})
		}
		return status
	}
	done := in(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	done.Succeeded, done.StartTime, done.CompletionTime = 3, &born, &minute
	for _, tc := range []struct {
		name      string
		convertor rest.TableConvertor
		obj       runtime.Object
		wide      bool
		want      string
	}{
		{"job", job.Resource().Table(), &batchv1.Job{ObjectMeta: meta, Spec: spec, Status: done}, true,
			"NAME|STATUS|COMPLETIONS|DURATION|AGE|CONTAINERS|IMAGES|SELECTOR\nx|Complete|3/3|60s|3h|a,b|i:1,j|k=v"},
		{"jobs", job.Resource().Table(), &batchv1.JobList{Items: []batchv1.Job{
			{ObjectMeta: meta},
			{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: new(int32(4))}, Status: batchv1.JobStatus{StartTime: &born}},
			{ObjectMeta: leaving, Status: in(batchv1.JobFailureTarget, batchv1.JobFailed)},
			{ObjectMeta: leaving, Status: in(batchv1.JobSuspended)},
			{ObjectMeta: meta, Status: in(batchv1.JobSuspended)},
			{ObjectMeta: meta, Status: in(batchv1.JobFailureTarget)},
			{ObjectMeta: meta, Status: in(batchv1.JobSuccessCriteriaMet)},
		}}, false, "NAME|STATUS|COMPLETIONS|DURATION|AGE\nx|Running|0/1||3h\nx|Running|0/1 of 4|3h|3h\nx|Failed|0/1||3h\nx|Terminating|0/1||3h\n" +
			"x|Suspended|0/1||3h\nx|FailureTarget|0/1||3h\nx|SuccessCriteriaMet|0/1||3h"},
		{"cron jobs", cronjob.Resource().Table(), &batchv1.CronJobList{Items: []batchv1.CronJob{
			{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "@daily"}},
			{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "0 * * * *", TimeZone: new("UTC"), Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: spec}},
				Status: batchv1.CronJobStatus{Active: make([]corev1.ObjectReference, 2), LastScheduleTime: &minute}},
		}}, true, "NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|AGE|CONTAINERS|IMAGES|SELECTOR\nx|@daily|<none>|<unset>|0|<none>|3h|||<none>\n" +
			"x|0 * * * *|UTC|True|2|179m|3h|a,b|i:1,j|k=v"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := render(t, tc.convertor, tc.obj, tc.wide); got != tc.want {
				t.Errorf("table:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}
