package controllers_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/apitest"
)

// TestEndedJobsAreDeleted: a job goes when its time is over, with its pods; not one that somebody wanted to keep in the last moment.
func TestEndedJobsAreDeleted(t *testing.T) {
	api := apitest.Start(t)
	jobs := api.Client.BatchV1().Jobs("default")
	make := func(name string) {
		t.Helper()
		// It has nothing to do, and so has finished when it is looked at.
		_, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
			Completions: new(int32), TTLSecondsAfterFinished: ptr.To[int32](1),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	resource := batchv1.SchemeGroupVersion.WithResource("jobs")
	tried := 0
	defer failpoint.Arm("controllers/ttl/delete", func() error {
		if tried++; tried == 1 {
			j, err := jobs.Get(t.Context(), "kept", metav1.GetOptions{})
			if err != nil {
				return err
			}
			j.Spec.TTLSecondsAfterFinished = nil
			_, err = jobs.Update(t.Context(), j, metav1.UpdateOptions{})
			return err
		}
		return nil
	})()
	api.Control(catalog.Job, catalog.TTLAfterFinished, catalog.GarbageCollector)
	make("kept")
	api.Await(resource, "default", "kept", "one that is kept", func(o *metav1.PartialObjectMetadata) bool { return o != nil && o.Generation == 2 })
	make("goes")
	api.AwaitGone(resource, "default", "goes")
	if _, err := jobs.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
