package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/apitest"
)

var ofCronJobs = []string{catalog.CronJob, catalog.Job, catalog.GarbageCollector}

type cronJobs struct{ *apitest.API }

// yearly makes a cron job that was last looked at three years ago, of jobs that have nothing to do, or that wait.
func (w cronJobs) yearly(name string, waits bool, change ...func(*batchv1.CronJob)) {
	w.Helper()
	client := w.Client.BatchV1().CronJobs("default")
	cj := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", TimeZone: ptr.To("Etc/UTC"), Suspend: ptr.To(true),
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](0), Suspend: new(bool),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}},
	}}
	if waits {
		*cj.Spec.JobTemplate.Spec.Suspend, *cj.Spec.JobTemplate.Spec.Completions = true, 1
	}
	for _, c := range change {
		c(cj)
	}
	cj, err := client.Create(w.Context(), cj, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	cj.Status.LastScheduleTime = &metav1.Time{Time: time.Now().AddDate(-3, 0, 0)}
	if _, err := client.UpdateStatus(w.Context(), cj, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.patch(name, `{"spec":{"suspend":false}}`)
}

func (w cronJobs) patch(name, data string) {
	w.Helper()
	if _, err := w.Client.BatchV1().CronJobs("default").Patch(w.Context(), name, types.MergePatchType, []byte(data), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w cronJobs) await(name, what string, wanted func(*batchv1.CronJob) bool) *batchv1.CronJob {
	w.Helper()
	var last *batchv1.CronJob
	w.AwaitChange(func(ctx context.Context) bool {
		var err error
		if last, err = w.Client.BatchV1().CronJobs("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			w.Fatal(err)
		}
		return wanted(last)
	}, func() string { return fmt.Sprintf("cron job %s does not become %s: %+v", name, what, last.Status) }, cronJobResource, "default")
	return last
}

// jobsOf are the jobs of a cron job.
func (w cronJobs) jobsOf(cj *batchv1.CronJob) (all []batchv1.Job) {
	w.Helper()
	list, err := w.Client.BatchV1().Jobs("default").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, j := range list.Items {
		if metav1.IsControlledBy(&j, cj) {
			all = append(all, j)
		}
	}
	return all
}

// thisYear is the time that all cron jobs here are due.
func thisYear() time.Time { return time.Date(time.Now().UTC().Year(), 1, 1, 0, 0, 0, 0, time.UTC) }

func TestCronJob(t *testing.T) {
	w := cronJobs{apitest.Start(t)}
	w.Control(ofCronJobs...)
	w.yearly("done", false)
	cj := w.await("done", "done", func(cj *batchv1.CronJob) bool {
		return len(cj.Status.Active) == 0 && cj.Status.LastSuccessfulTime != nil
	})
	all := w.jobsOf(cj)
	if len(all) != 1 || all[0].Name != fmt.Sprintf("done-%d", thisYear().Unix()/60) || !cj.Status.LastScheduleTime.Time.Equal(thisYear()) ||
		all[0].Annotations[batchv1.CronJobScheduledTimestampAnnotation] != thisYear().Format(time.RFC3339) {
		t.Errorf("jobs %+v of %+v", all, cj.Status)
	}
	// As kubectl create job --from does: it is the cron job's, and kept as its own are.
	for i := range 3 {
		_, err := w.Client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("manual-", i), Annotations: map[string]string{"cronjob.kubernetes.io/instantiate": "manual"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
			}, Spec: cj.Spec.JobTemplate.Spec,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.AwaitChange(func(context.Context) bool {
		all = w.jobsOf(cj)
		finished := 0
		for _, j := range all {
			if j.Status.CompletionTime != nil {
				finished++
			}
		}
		return len(all) == 3 && finished == 3
	}, func() string { return fmt.Sprintf("there are %d jobs", len(all)) }, jobResource, "default")
	w.AwaitGone(jobResource, "default", fmt.Sprintf("done-%d", thisYear().Unix()/60)) // it was without a start, as they are, and is the first by name

	w.yearly("waits", true)
	w.await("waits", "active", func(cj *batchv1.CronJob) bool { return len(cj.Status.Active) == 1 })
	if err := w.Client.BatchV1().Jobs("default").Delete(t.Context(), fmt.Sprintf("waits-%d", thisYear().Unix()/60), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("waits", "idle", func(cj *batchv1.CronJob) bool { return len(cj.Status.Active) == 0 })

	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		// A job of another time runs still when this one has come.
		low := map[batchv1.ConcurrencyPolicy]string{batchv1.ForbidConcurrent: "forbid", batchv1.ReplaceConcurrent: "replace"}[policy]
		w.yearly(low, true, func(cj *batchv1.CronJob) { cj.Spec.ConcurrencyPolicy, cj.Spec.Schedule = policy, "0 0 2 1 *" })
		cj := w.await(low, "active", func(cj *batchv1.CronJob) bool { return len(cj.Status.Active) == 1 })
		first := cj.Status.Active[0]
		w.patch(low, `{"spec":{"schedule":"@every 1s"}}`)
		if policy == batchv1.ReplaceConcurrent {
			w.AwaitGone(jobResource, "default", first.Name)
			w.await(low, "active with another one", func(cj *batchv1.CronJob) bool {
				return len(cj.Status.Active) == 1 && cj.Status.Active[0].UID != first.UID
			})
			continue
		}
		w.AwaitChange(func(ctx context.Context) bool {
			list, err := w.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=JobAlreadyActive"})
			return err == nil && len(list.Items) > 0
		}, func() string { return "no event tells that a job is active" }, corev1.SchemeGroupVersion.WithResource("events"), "default")
		if all := w.jobsOf(cj); len(all) != 1 {
			t.Errorf("%d jobs run", len(all))
		}
	}
}

// TestCronJobEditedSchedule: no job is made for a moment before its schedule was there, and one for the first after it, whether a controller runs meanwhile or not.
func TestCronJobEditedSchedule(t *testing.T) {
	w := cronJobs{apitest.Start(t)}
	for _, runs := range []bool{true, false} {
		name := fmt.Sprint("edited-", runs)
		stop := func() {}
		if runs {
			stop = w.Control(ofCronJobs...)
		}
		w.yearly(name, true, func(cj *batchv1.CronJob) { cj.Spec.Schedule, cj.Spec.TimeZone = "0 0 31 12 *", ptr.To("Etc/UTC") })
		if runs {
			w.await(name, "active", func(cj *batchv1.CronJob) bool { return len(cj.Status.Active) == 1 })
		}
		before := time.Now().Truncate(time.Second)
		w.patch(name, `{"spec":{"schedule":"0 0 2 1 *"}}`)
		w.patch(name, `{"spec":{"timeZone":"Europe/Berlin"}}`)
		w.patch(name, `{"spec":{"schedule":"@every 1s"}}`)
		if !runs {
			stop = w.Control(ofCronJobs...)
		}
		cj := w.await(name, "at a time after the edit", func(cj *batchv1.CronJob) bool {
			return cj.Status.LastScheduleTime.After(before)
		})
		for _, j := range w.jobsOf(cj) {
			at, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
			if first := at.UTC().Format("01-02 15:04") == "12-31 00:00"; err != nil || !at.After(before) && !(runs && first) {
				t.Errorf("%s: there is a job for %v, before the edit at %v (%v)", name, at, before, err)
			}
		}
		stop()
	}
}

// TestCronJobStopsAtEveryStep: a controller that ends at any step, and begins anew, makes one job of each time, and knows of it.
func TestCronJobStopsAtEveryStep(t *testing.T) {
	w := cronJobs{apitest.Start(t)}
	for _, step := range []string{"create", "created", "tell", "told"} {
		reached, over := make(chan struct{}), make(chan struct{})
		var once sync.Once
		disarm := failpoint.Arm("controllers/cronjob/"+step, func() error {
			once.Do(func() { close(reached) })
			<-over
			return errors.New("the end")
		})
		stop := w.Control(ofCronJobs...)
		w.yearly(step, true)
		select {
		case <-reached:
		case <-time.After(apitest.Timeout):
			t.Errorf("step %s is not reached", step)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			stop()
		}()
		close(over)
		<-ended
		disarm()
		stop = w.Control(ofCronJobs...)
		cj := w.await(step, "active", func(cj *batchv1.CronJob) bool {
			return len(cj.Status.Active) == 1 && cj.Status.LastScheduleTime.Time.Equal(thisYear())
		})
		if all := w.jobsOf(cj); len(all) != 1 || all[0].UID != cj.Status.Active[0].UID {
			t.Errorf("%s: jobs %+v of %+v", step, all, cj.Status)
		}
		stop()
	}
}
