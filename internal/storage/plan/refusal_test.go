package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFailed: a claim tells what it was told last, once, beside what others say of it.
func TestFailed(t *testing.T) {
	began := metav1.NewTime(time.Unix(1, 0))
	c := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused}}}}
	if same, changed := Succeeded(c); changed || same != c {
		t.Error("a claim that says nothing is changed")
	}
	first, changed := Failed(c, "one", began)
	if !changed || len(c.Status.Conditions) != 1 || len(first.Status.Conditions) != 2 || first.Status.Conditions[1].Message != "one" {
		t.Fatalf("%v, %+v", changed, first.Status)
	}
	if same, changed := Failed(first, "one", metav1.Now()); changed || same != first {
		t.Error("it is told twice")
	}
	second, changed := Failed(first, "two", metav1.Now())
	if !changed || len(second.Status.Conditions) != 2 || second.Status.Conditions[1].Message != "two" || first.Status.Conditions[1].Message != "one" {
		t.Errorf("%v, %+v", changed, second.Status)
	}
	last, changed := Succeeded(second)
	if !changed || len(last.Status.Conditions) != 1 || last.Status.Conditions[0].Type != corev1.PersistentVolumeClaimUnused || len(second.Status.Conditions) != 2 {
		t.Errorf("%v, %+v", changed, last.Status)
	}
}
