package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// waitsFor says that the pod is held for want of its devices, and that its status and its container say so in these words.
func waitsFor(words string) func(v1.PodStatus) bool {
	return func(st v1.PodStatus) bool {
		if st.Phase != v1.PodPending || st.Reason != "DevicesNotReady" || !strings.Contains(st.Message, words) || len(st.ContainerStatuses) == 0 {
			return false
		}
		w := st.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "DevicesNotReady" && strings.Contains(w.Message, words)
	}
}

// TestRuntimeIgnoresCDI: no pod with CDI devices starts on a runtime that ignores them; others do, and it does on one that does not.
func TestRuntimeIgnoresCDI(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.rt.Is("containerd", "1.6.20")
	b.rt.IgnoreCDI(true)
	b.start()
	b.devices.set(2)
	b.create(pod("p", wantsWidget))
	st := b.status("p", "is held", waitsFor("containerd 1.6.20 ignores them"))
	if m := st.Message; !strings.Contains(m, "enable_cdi") || !strings.Contains(m, "CRI-O") || !strings.Contains(m, "example.com/widget=0") {
		t.Errorf("message %q", m)
	}
	b.eventually("what was tried is gone", func() bool { _, left := b.rt.Count(); return left == 0 })
	if slices.ContainsFunc(b.rt.Calls(), func(c string) bool { return strings.HasPrefix(c, "StartContainer") }) {
		t.Error("a container was started")
	}
	b.create(pod("q"))
	b.status("q", "is ready without devices", isReady)

	begun := time.Now()
	b.rt.Stop()
	b.rt.Is("containerd", "2.1.0")
	b.rt.IgnoreCDI(false)
	b.rt.Serve(t)
	st = b.status("p", "is ready", isReady)
	if st.Reason != "" || st.Message != "" {
		t.Errorf("status %s %q", st.Reason, st.Message)
	}
	t.Logf("%s after the upgrade", time.Since(begun))
	for _, id := range b.rt.Running("a") {
		for _, d := range b.rt.Config(id).CDIDevices {
			if d.Name != "example.com/widget=0" {
				t.Errorf("it runs with %s", d.Name)
			}
		}
	}
}

// TestRuntimeFailsWhenItIsTried: errors about other things are no answer; they are shown as they are, and it is tried again.
func TestRuntimeFailsWhenItIsTried(t *testing.T) {
	b := newBench(t)
	b.rt.IgnoreCDI(true)
	b.rt.Fail("CreateContainer", status.Error(codes.Internal, "no space left on device"))
	b.devices.set(1)
	b.create(pod("p", wantsWidget))
	b.status("p", "tells the error", func(st v1.PodStatus) bool {
		if len(st.ContainerStatuses) == 0 {
			return false
		}
		w := st.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "CreateContainerError" && strings.Contains(w.Message, "no space left on device")
	})
	b.rt.Fail("CreateContainer", nil)
	b.status("p", "is held", waitsFor("ignores them"))
}

// TestKilledWhileItTries: what an agent that was killed has left of a trial is removed by the next one, which goes on.
func TestKilledWhileItTries(t *testing.T) {
	b := newBench(t)
	b.rt.IgnoreCDI(true)
	// It does not get to remove what it has created.
	b.rt.Fail("RemoveContainer", status.Error(codes.Unavailable, "the agent was killed"))
	b.devices.set(1)
	b.create(pod("p", wantsWidget))
	b.eventually("it has been tried", func() bool { _, left := b.rt.Count(); return left == 1 })
	b.stop()
	if _, left := b.rt.Count(); left != 1 {
		t.Fatalf("%d containers are left", left)
	}
	b.rt.Fail("RemoveContainer", nil)
	b.rt.IgnoreCDI(false)
	b.start()
	b.status("p", "is ready", isReady)
	if _, all := b.rt.Count(); all != 1 {
		t.Errorf("%d containers", all)
	}
	b.rt.IgnoreCDI(true)
	b.delete("p", 0)
	b.noPod("p")
	if s, c := b.rt.Count(); s+c != 0 {
		t.Errorf("%d sandboxes and %d containers are left", s, c)
	}
}

// TestDeletedWhileItIsHeld: nothing is left of what was tried.
func TestDeletedWhileItIsHeld(t *testing.T) {
	b := newBench(t)
	b.rt.IgnoreCDI(true)
	b.rt.Fail("RemoveContainer", status.Error(codes.Internal, "busy"))
	b.devices.set(1)
	b.create(pod("p", wantsWidget))
	b.status("p", "is held", waitsFor("ignores them"))
	b.rt.Fail("RemoveContainer", nil)
	b.delete("p", 0)
	b.noPod("p")
	if s, c := b.rt.Count(); s+c != 0 {
		t.Errorf("%d sandboxes and %d containers are left", s, c)
	}
}
