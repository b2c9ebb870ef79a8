package binder

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestTheStatusOfAPodThatWaits(t *testing.T) {
	pod := named("p", widget, "1")
	pod.Status.Phase = corev1.PodPending
	pod.Status = waiting(pod, "no widget", true, start)
	if pod.Status.Reason != "DevicesNotReady" || pod.Status.Message != "no widget" || pod.Status.Phase != corev1.PodPending {
		t.Errorf("%+v", pod.Status)
	}
	for _, c := range []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no widget", LastTransitionTime: metav1.NewTime(start)},
		{Type: devicesReady, Status: corev1.ConditionFalse, Reason: "DevicesNotReady", Message: "no widget", LastTransitionTime: metav1.NewTime(start)},
	} {
		if got := condition(&pod.Status, c.Type); got != c {
			t.Errorf("%+v, want %+v", got, c)
		}
	}
	if again := waiting(pod, "no widget", true, start.Add(time.Hour)); !apiequality.Semantic.DeepEqual(again, pod.Status) {
		t.Errorf("the same again: %+v, want %+v", again, pod.Status)
	}
	pod.Status = waiting(pod, "no memory", false, start.Add(time.Hour))
	if pod.Status.Reason != "" || pod.Status.Message != "" || condition(&pod.Status, corev1.PodScheduled).Message != "no memory" {
		t.Errorf("without memory: %+v", pod.Status)
	}
	if c := condition(&pod.Status, devicesReady); c.Status != corev1.ConditionTrue || c.Reason != "" || c.Message != "" {
		t.Errorf("without memory alone it still waits for devices: %+v", c)
	}
	pod.Status = waiting(pod, "less widgets", true, start.Add(2*time.Hour))
	if c := condition(&pod.Status, devicesReady); !c.LastTransitionTime.Time.Equal(start.Add(2*time.Hour)) || c.Message != "less widgets" {
		t.Errorf("a new wait counts from its own beginning: %+v", c)
	}
	if c := condition(&pod.Status, corev1.PodScheduled); !c.LastTransitionTime.Time.Equal(start) {
		t.Errorf("it has had no node all the time: %+v", c)
	}

	plain := named("q", "cpu", "1")
	plain.Status = corev1.PodStatus{Reason: "Other", Message: "somebody else's"}
	if st := waiting(plain, "no CPU", false, start); st.Reason != "Other" || st.Message != "somebody else's" || condition(&st, devicesReady).Status != "" {
		t.Errorf("a pod without devices: %+v", st)
	}
}

func TestDeadline(t *testing.T) {
	for annotation, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "soon": 0, "-1s": 0, "0": 0, "": 0} {
		pod := named("p", widget, "1")
		pod.Annotations = map[string]string{devicesDeadline: annotation}
		if at := failsAt(pod, &pod.Status); !at.IsZero() {
			t.Errorf("%q: fails at %v, and does not wait yet", annotation, at)
		}
		st := waiting(pod, "no widget", true, start)
		at := failsAt(pod, &st)
		if (want == 0) != at.IsZero() || want > 0 && at.Sub(start) != want {
			t.Errorf("%q: fails at %v, want %v after %v", annotation, at, want, start)
		}
		if _, err := patience(pod); (err == nil) != (want > 0) || err != nil && !strings.Contains(err.Error(), `is "`+annotation+`" and has no effect`) {
			t.Errorf("%q: %v", annotation, err)
		}
	}
	pod := named("p", widget, "1")
	if d, err := patience(pod); d != 0 || err != nil {
		t.Errorf("without the annotation: %v, %v", d, err)
	}
	pod.Status = waiting(pod, "no widget", true, start)
	st := failed(pod.Status, "no widget", start.Add(90*time.Second+time.Millisecond))
	const said = "the pod has waited 1m30s for its devices, as long as its annotation monopod.dev/devices-deadline says: no widget"
	if st.Phase != corev1.PodFailed || st.Reason != "DevicesNotReady" || st.Message != said {
		t.Errorf("%+v", st)
	}
}
