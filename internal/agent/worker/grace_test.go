package worker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestGraces: a pod that is deleted has the time that the deletion gives it, and two seconds where that is none.
func TestGraces(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	deleted := func(grace int64) func(w *Worker) {
		return func(w *Worker) {
			pod := w.pod.DeepCopy()
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &grace
			w.Update(pod)
		}
	}
	gone := (*Worker).Gone
	for name, c := range map[string]struct {
		own   int64
		tells []func(w *Worker)
		want  time.Duration
	}{
		"one second":                        {30, []func(*Worker){deleted(1)}, time.Second},
		"by force":                          {30, []func(*Worker){deleted(0)}, 2 * time.Second},
		"a minute":                          {30, []func(*Worker){deleted(60)}, time.Minute},
		"a shorter one overtakes":           {30, []func(*Worker){deleted(60), deleted(1)}, time.Second},
		"a longer one does not":             {30, []func(*Worker){deleted(1), deleted(60)}, time.Second},
		"by force, after one second":        {30, []func(*Worker){deleted(1), deleted(0)}, time.Second},
		"gone after its deletion":           {30, []func(*Worker){deleted(60), gone}, 2 * time.Second},
		"gone, its own is 30 s":             {30, []func(*Worker){gone}, 30 * time.Second},
		"gone, its own is a second":         {1, []func(*Worker){gone}, time.Second},
		"gone, it has none":                 {0, []func(*Worker){gone}, 2 * time.Second},
		"gone, of an older API server's -1": {-1, []func(*Worker){gone}, time.Second},
	} {
		w := &Worker{wake: make(chan struct{}, 1)}
		w.pod = &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: seconds(c.own)}}
		before := time.Now()
		for _, tell := range c.tells {
			tell(w)
		}
		if after := time.Now(); w.stopBy.Before(before.Add(c.want)) || w.stopBy.After(after.Add(c.want)) {
			t.Errorf("%s: it has %v, want %v", name, w.stopBy.Sub(before), c.want)
		}
	}
}
