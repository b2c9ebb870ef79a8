package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/agent/plan"
)

func deadline(value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = map[string]string{plan.DevicesDeadlineAnnotation: value} }
}

// waitCondition is that of a pod that waits, or has waited, for its devices; nil: none.
func waitCondition(st v1.PodStatus) *v1.PodCondition {
	i := slices.IndexFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == plan.DevicesReady })
	if i < 0 {
		return nil
	}
	return &st.Conditions[i]
}

// TestDevicesDeadline: a pod fails when it has waited for its devices as long as it wants to, and nothing of it is made or left.
func TestDevicesDeadline(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", wantsWidget, deadline("200ms")))
	b.create(pod("patient", wantsWidget, deadline("1h")))
	st := b.phase("p", v1.PodFailed)
	if st.Reason != "DevicesNotReady" || !strings.Contains(st.Message, "has waited") || !strings.Contains(st.Message, "example.com/widget is not ready") {
		t.Errorf("status %s: %q", st.Reason, st.Message)
	}
	if s, c := b.rt.Count(); s+c != 0 {
		t.Errorf("%d sandboxes and %d containers", s, c)
	}
	b.nothingLeft("p")
	b.status("patient", "waits", waitsFor("example.com/widget is not ready"))
	b.devices.set(1)
	st = b.status("patient", "is ready", isReady)
	if c := waitCondition(st); c == nil || c.Status != v1.ConditionTrue {
		t.Errorf("conditions %+v", st.Conditions)
	}
}

// TestSilentPlugin: a pod whose devices were asked for and that gets no answer says for whom it waits, and so does an event, once.
func TestSilentPlugin(t *testing.T) {
	b := newBench(t)
	b.devices.set(1)
	b.devices.mu.Lock()
	silent := make(chan struct{})
	b.devices.silent = silent
	b.devices.mu.Unlock()
	b.create(pod("p", wantsWidget))
	waits := waitsFor("example.com/widget is not ready: w.sock was asked for it at ")
	b.status("p", "waits", waits)
	told := func() (n int) {
		list, err := b.kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == "DevicesNotReady" && strings.Contains(e.Message, "w.sock") {
				n += int(e.Count)
			}
		}
		return n
	}
	b.eventually("an event tells of it", func() bool { return told() == 1 })
	b.devices.tick()
	b.status("p", "still waits", waits)
	b.devices.mu.Lock()
	b.devices.silent = nil
	b.devices.mu.Unlock()
	close(silent)
	st := b.status("p", "is ready", isReady)
	if c := waitCondition(st); c == nil || c.Status != v1.ConditionTrue {
		t.Errorf("conditions %+v", st.Conditions)
	}
	if n := told(); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestDevicesDeadlineOutlivesTheAgent: the wait goes on while the agent is away, and counts from its beginning.
func TestDevicesDeadlineOutlivesTheAgent(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", wantsWidget, deadline("2s")))
	began := waitCondition(b.status("p", "waits", waitsFor("example.com/widget is not ready")))
	b.stop()
	b.eventually("the deadline is over", func() bool { return time.Since(began.LastTransitionTime.Time) > 2*time.Second })
	b.start()
	begun := time.Now()
	st := b.phase("p", v1.PodFailed)
	if st.Reason != "DevicesNotReady" || !strings.Contains(st.Message, "example.com/widget is not ready") {
		t.Errorf("status %s: %q", st.Reason, st.Message)
	}
	if c := waitCondition(st); c == nil || !c.LastTransitionTime.Equal(&began.LastTransitionTime) {
		t.Errorf("conditions %+v, it began at %s", st.Conditions, began.LastTransitionTime)
	}
	t.Logf("%s after the agent was ready", time.Since(begun))
}

// TestDevicesDeadlineOnARuntimeWithoutCDI: that is a wait for devices as well.
func TestDevicesDeadlineOnARuntimeWithoutCDI(t *testing.T) {
	b := newBench(t)
	b.rt.IgnoreCDI(true)
	b.devices.set(1)
	b.create(pod("p", wantsWidget, deadline("200ms")))
	if st := b.phase("p", v1.PodFailed); st.Reason != "DevicesNotReady" || !strings.Contains(st.Message, "ignores them") {
		t.Errorf("status %s: %q", st.Reason, st.Message)
	}
	b.eventually("the device is given back", func() bool { return len(b.devices.Grants()) == 0 })
}

// TestDevicesDeadlineThatCannotBeRead: it has no effect, which one event tells, also after a restart of the agent.
func TestDevicesDeadlineThatCannotBeRead(t *testing.T) {
	b := newBench(t)
	b.create(pod("p", wantsWidget, deadline("soon")))
	b.status("p", "waits", waitsFor("example.com/widget is not ready"))
	b.eventually("an event tells of it", func() bool { return b.events()["InvalidAnnotation"] == 1 })
	if kind, m := b.message("InvalidAnnotation"); kind != v1.EventTypeWarning || !strings.Contains(m, `monopod.dev/devices-deadline is "soon"`) {
		t.Errorf("event %s %q", kind, m)
	}
	b.stop()
	b.start()
	b.devices.set(1)
	b.status("p", "is ready", isReady)
	b.eventually("it is told that it runs", func() bool { return b.events()["Started"] == 1 })
	if n := b.events()["InvalidAnnotation"]; n != 1 {
		t.Errorf("%d events", n)
	}
}
