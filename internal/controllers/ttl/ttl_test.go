package ttl

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestLeft(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := func(kind batchv1.JobConditionType, is corev1.ConditionStatus, ago time.Duration) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: is, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	for name, c := range map[string]struct {
		ttl        *int32
		conditions []batchv1.JobCondition
		deleted    bool
		want       time.Duration
		goes       bool
	}{
		"kept":          {nil, ended(batchv1.JobComplete, corev1.ConditionTrue, time.Hour), false, 0, false},
		"runs":          {ptr.To[int32](0), ended(batchv1.JobFailureTarget, corev1.ConditionTrue, time.Hour), false, 0, false},
		"not failed":    {ptr.To[int32](0), ended(batchv1.JobFailed, corev1.ConditionFalse, time.Hour), false, 0, false},
		"at once":       {ptr.To[int32](0), ended(batchv1.JobFailed, corev1.ConditionTrue, 0), false, 0, true},
		"later":         {ptr.To[int32](10), ended(batchv1.JobComplete, corev1.ConditionTrue, 3*time.Second), false, 7 * time.Second, true},
		"over":          {ptr.To[int32](10), ended(batchv1.JobComplete, corev1.ConditionTrue, 30*time.Second), false, -20 * time.Second, true},
		"goes already":  {ptr.To[int32](10), ended(batchv1.JobComplete, corev1.ConditionTrue, 30*time.Second), true, 0, false},
		"in the future": {ptr.To[int32](10), ended(batchv1.JobComplete, corev1.ConditionTrue, -time.Minute), false, 70 * time.Second, true},
	} {
		j := &batchv1.Job{Spec: batchv1.JobSpec{TTLSecondsAfterFinished: c.ttl}, Status: batchv1.JobStatus{Conditions: c.conditions}}
		if c.deleted {
			j.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if got, goes := left(j, now); got != c.want || goes != c.goes {
			t.Errorf("%s: %v, %t, want %v, %t", name, got, goes, c.want, c.goes)
		}
	}
}
