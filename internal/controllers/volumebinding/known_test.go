package volumebinding

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestWritten(t *testing.T) {
	var w written[*corev1.PersistentVolume]
	at := func(version string) *corev1.PersistentVolume {
		return sized("v", "1Gi", func(v *corev1.PersistentVolume) { v.ResourceVersion = version })
	}
	if old := at("9"); w.newest(old) != old {
		t.Error("nothing was written, and another one is newer")
	}
	ours := at("10")
	w.note(ours)
	if w.newest(at("9")) != ours {
		t.Error("what was written is forgotten while the cache does not show it")
	}
	again := at("9")
	if again.UID = "another"; w.newest(again) != again {
		t.Error("an object of the name that was before is given in the place of another")
	}
	w.note(ours)
	if same := at("10"); w.newest(same) != same || len(w.by) != 0 {
		t.Error("what was written is kept when the cache shows it")
	}
	w.note(ours)
	if w.forget(cache.ObjectName{Name: "v"}); len(w.by) != 0 {
		t.Error("what is gone is kept")
	}
}

func TestTold(t *testing.T) {
	now := time.Unix(1000, 0)
	told := told{now: func() time.Time { return now }}
	name, e := cache.NewObjectName("ns", "c"), *note("WaitForPodScheduled", "waiting for pod p to be scheduled")
	other := e
	other.Message = "waiting for pod q to be scheduled"
	for i, step := range []struct {
		after time.Duration
		uid   types.UID
		event Event
		due   bool
	}{
		{0, "u", e, true}, {time.Second, "u", e, false}, {time.Second, "u", other, true}, {time.Second, "u", other, false},
		{pace, "u", other, true}, {time.Second, "w", other, true}, {time.Second, "w", other, false},
	} {
		now = now.Add(step.after)
		if got := told.due(name, step.uid, step.event); got != step.due {
			t.Errorf("step %d: due is %t", i, got)
		}
	}
	if told.forget(name); !told.due(name, "w", other) {
		t.Error("one that waits again is not told")
	}
}
