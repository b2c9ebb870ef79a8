package binder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	insufficient = "0/1 nodes are available: 1 Insufficient example.com/widget."
	deadline     = "monopod.dev/devices-deadline"
)

// kept is what a pod says that waits behind another one.
func kept(behind string) string {
	return fmt.Sprintf("0/1 nodes are available: 1 node(s) kept example.com/widget for pod default/%s, which came first.", behind)
}

// annotate sets a pod's deadline.
func (w *world) annotate(pod, value string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, deadline, value)
	if _, err := w.client.CoreV1().Pods("default").Patch(w.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// untilFailed waits until a pod has failed for want of devices, and returns when it began to wait.
func (w *world) untilFailed(name, why string) (since time.Time) {
	w.Helper()
	w.until(name, "failed", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == "monopod.dev/DevicesReady" && c.Status == corev1.ConditionFalse {
				since = c.LastTransitionTime.Time
			}
		}
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DevicesNotReady" && strings.HasSuffix(p.Status.Message, why)
	})
	return since
}

// TestFirstComeFirstServed: who asks for many devices is not passed by those who ask for few.
func TestFirstComeFirstServed(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4", widget, "2")
	w.pod("first", nil, widget, "1")
	w.untilBound("first", "n")
	w.pod("big", nil, widget, "2")
	w.untilWaiting("big", insufficient)
	w.pod("late", nil, widget, "1")
	w.untilWaiting("late", kept("big"))
	w.until("late", "waiting for devices", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodPending && p.Status.Reason == "DevicesNotReady" && p.Status.Message == kept("big")
	})
	w.pod("other", nil, "cpu", "1")
	w.untilBound("other", "n")
	w.end("first")
	w.untilBound("big", "n")
	w.untilWaiting("late", insufficient)
	w.pod("later", nil, widget, "2")
	w.untilWaiting("later", insufficient)
	w.end("big")
	w.untilBound("late", "n")
	w.end("late")
	w.untilBound("later", "n")
}

// TestTheLineGoesOn: those behind a pod that leaves the line get its place, whyever it leaves.
func TestTheLineGoesOn(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4", widget, "2")
	w.pod("first", nil, widget, "1")
	w.untilBound("first", "n")
	next := func(name string) {
		t.Helper()
		w.pod("big", nil, widget, "2", "cpu", "3")
		w.untilWaiting("big", insufficient)
		w.pod(name, nil, widget, "1")
		w.untilWaiting(name, kept("big"))
	}

	next("deleted")
	w.end("big")
	w.untilBound("deleted", "n")
	w.end("deleted")

	next("deadline")
	w.annotate("big", "1ms")
	w.untilFailed("big", insufficient)
	w.untilBound("deadline", "n")
	w.end("deadline")
	w.end("big")

	next("cpu")
	w.pod("busy", nil, "cpu", "2") // has nothing to do with devices, and may be there for ever
	w.untilBound("cpu", "n")
	w.end("cpu")
	w.until("big", "without CPU, too", func(p *corev1.Pod) bool {
		return strings.Contains(p.Status.Message, "Insufficient cpu") && p.Status.Reason == "DevicesNotReady"
	})
	w.end("first")
	w.until("big", "without CPU alone", func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) > 0 && p.Status.Reason == "" && p.Status.Message == ""
	})
	w.end("busy")
	w.untilBound("big", "n")
}

// TestWhoAsksForTooMuchIsInNobodysWay, with a node of its own choice and without.
func TestWhoAsksForTooMuchIsInNobodysWay(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4", widget, "2")
	w.pod("placed", func(s *corev1.PodSpec) { s.NodeName = "n" }, widget, "9")
	w.pod("huge", nil, widget, "3")
	w.untilWaiting("huge", insufficient+" No node has 3 of example.com/widget now, so younger pods may start first.")
	w.pod("small", nil, widget, "2")
	w.untilBound("small", "n")

	w.node("n", "cpu", "4", widget, "3") // one has been mended
	w.untilWaiting("huge", insufficient)
	w.pod("late", nil, widget, "1")
	w.untilWaiting("late", kept("huge"))
	w.end("small")
	w.untilBound("huge", "n")
}

// TestForWhomIsKeptIsToldAsItChanges: that a pod with a node waits there for devices, and no longer does, is heard by those who have none.
func TestForWhomIsKeptIsToldAsItChanges(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4", widget, "2")
	w.pod("placed", func(s *corev1.PodSpec) { s.NodeName = "n" }, widget, "2")
	w.pod("late", nil, widget, "1")
	w.untilWaiting("late", insufficient)
	says := func(status string) {
		t.Helper()
		patch := `{"status":{"startTime":"2027-01-15T08:00:00Z","conditions":[{"type":"monopod.dev/DevicesReady","status":"` + status + `"}]}}`
		if _, err := w.client.CoreV1().Pods("default").Patch(t.Context(), "placed", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	says("False")
	w.untilWaiting("late", insufficient+" example.com/widget is kept for pod default/placed, which came first.")
	says("True")
	w.untilWaiting("late", insufficient)
}

// TestWhyDevicesAreIllIsToldAsItChanges: the agent's words about its devices are in what waiting pods are told.
func TestWhyDevicesAreIllIsToldAsItChanges(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4", widget, "2")
	w.pod("huge", nil, widget, "3")
	const tooMany = insufficient + " No node has 3 of example.com/widget now, so younger pods may start first"
	w.untilWaiting("huge", tooMany+".")
	w.patchNode("n", `{"metadata":{"annotations":{"monopod.dev/device-faults":"{\"example.com/widget\":\"/dev/w3 does not exist\"}"}}}`)
	w.untilWaiting("huge", tooMany+"; node n says: /dev/w3 does not exist.")
	w.patchNode("n", `{"metadata":{"annotations":{"monopod.dev/device-faults":null}}}`)
	w.untilWaiting("huge", tooMany+".")
}

// TestAPodFailsAtItsDeadlineForDevices without a node as it does with one, and not before.
func TestAPodFailsAtItsDeadlineForDevices(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4", widget, "1")
	w.pod("has", nil, widget, "1")
	w.untilBound("has", "n")
	w.pod("waits", nil, widget, "1")
	w.untilWaiting("waits", insufficient)
	w.pod("patient", nil, widget, "1")
	w.untilWaiting("patient", insufficient)
	w.annotate("patient", "1h")
	w.annotate("waits", "2s")
	since := w.untilFailed("waits", "for its devices, as long as its annotation monopod.dev/devices-deadline says: "+insufficient)
	if waited := time.Since(since); waited < 2*time.Second {
		t.Errorf("it failed %v after its wait had begun", waited)
	}
	w.pod("none", nil, "example.com/none", "1")
	w.untilWaiting("none", "0/1 nodes are available: 1 Insufficient example.com/none. No node offers example.com/none yet (there is example.com/widget); the pod starts when one does.")
	w.annotate("none", "1ms")
	w.untilFailed("none", "No node offers example.com/none yet (there is example.com/widget); the pod starts when one does.")

	w.annotate("patient", "soon")
	w.untilEvent("patient", "InvalidAnnotation", `the annotation monopod.dev/devices-deadline is "soon" and has no effect: a duration above zero is wanted, such as 30s, 5m or 1h30m`)
	w.end("has")
	w.untilBound("patient", "n")
}

// TestADeadlineOutlivesTheBinder: the wait counts from its beginning.
func TestADeadlineOutlivesTheBinder(t *testing.T) {
	w := newWorld(t)
	stop := w.bind()
	w.node("n", "cpu", "4")
	w.pod("p", nil, widget, "1")
	w.until("p", "waiting", func(p *corev1.Pod) bool { return p.Status.Reason == "DevicesNotReady" })
	stop()
	w.annotate("p", "1ms")
	w.bind()
	w.untilFailed("p", "the pod starts when one does.")
}

// TestTheOldestIsDecidedFirst, in whatever order the pods are looked at; and who is looked at before it is not told of a wait that is none.
func TestTheOldestIsDecidedFirst(t *testing.T) {
	w := newWorld(t)
	w.node("n", "cpu", "4", widget, "2")
	old := w.pod("z-old", nil, widget, "2")
	for w.pod("a-young", nil, widget, "1").CreationTimestamp.Equal(&old.CreationTimestamp) { // known to the second
		w.end("a-young")
	}
	w.bind() // which looks at them by their names
	w.untilBound("z-old", "n")
	w.untilEvent("a-young", "FailedScheduling", insufficient)
	events, err := w.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=a-young"})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) != 1 {
		t.Errorf("the younger one was told %v", events.Items)
	}
	w.end("z-old")
	w.untilBound("a-young", "n")
}

// TestAPodIsNotTiedToAFullNode: it waits for all nodes that could have it, and who came later does not get what it waits for.
func TestAPodIsNotTiedToAFullNode(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("a", "cpu", "4", widget, "2")
	w.node("b", "cpu", "4", widget, "2")
	w.pod("on-a", func(s *corev1.PodSpec) { s.NodeName = "a" }, widget, "1")
	w.pod("on-b", func(s *corev1.PodSpec) { s.NodeName = "b" }, widget, "1")
	w.pod("big", nil, widget, "2")
	w.untilWaiting("big", "0/2 nodes are available: 2 Insufficient example.com/widget.")
	w.pod("late", nil, widget, "1")
	w.untilWaiting("late", "0/2 nodes are available: 2 node(s) kept example.com/widget for pod default/big, which came first.")
	w.end("on-b")
	w.untilBound("big", "b")
	w.untilBound("late", "a")
}
