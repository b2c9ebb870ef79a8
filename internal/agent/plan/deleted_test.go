package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// endOf says how a pod is told to have ended: its phase, then its containers, init containers first.
func endOf(st *v1.PodStatus) string {
	words := []string{string(st.Phase)}
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for _, c := range list {
			switch s := c.State; {
			case s.Terminated != nil:
				words = append(words, fmt.Sprintf("%s:%s/%d", c.Name, s.Terminated.Reason, s.Terminated.ExitCode))
			case s.Running != nil:
				words = append(words, c.Name+":running")
			default:
				words = append(words, c.Name+":"+s.Waiting.Reason)
			}
		}
	}
	return strings.Join(words, " ")
}

// TestADeletedPodEnds: whatever a deleted pod had come to, it is told to have Failed or Succeeded before it goes, as since Kubernetes 1.27 (KEP-3329):
// a Job waits for that.
func TestADeletedPodEnds(t *testing.T) {
	del := deleted(10 * time.Second)
	rejected := v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfpods", ContainerStatuses: []v1.ContainerStatus{
		was("a", 0, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: ReasonContainerCreating}}),
	}}
	for _, c := range []struct {
		name string
		in   Input
		want string
	}{
		{"nothing was begun", given(del), "Failed a:ContainerStatusUnknown/137"},
		{"while its image is pulled", given(del, sandbox("s", 0, true), ongoing(StartContainer, "a")), "Pending a:ContainerCreating"},
		{"its image is not to be had", given(del, sandbox("s", 0, true), failure(StartContainer, "a", "ErrImagePull", time.Second, 3)), "Failed a:ContainerStatusUnknown/137"},
		{"its devices are not there", given(del, wantsDevice(false)), "Failed a:ContainerStatusUnknown/137"},
		{"an init container runs", given(del, inits("i"), sandbox("s", 0, true), has("i", 0, "s", Running)), "Pending i:running a:PodInitializing"},
		{"an init container was killed", given(del, inits("i"), sandbox("s", 0, true), has("i", 0, "s", Exited, code(137))), "Failed i:Error/137 a:PodInitializing"},
		{"no init container has run", given(del, inits("i", "j")), "Failed i:PodInitializing j:PodInitializing a:PodInitializing"},
		{"the first of two init containers is done", given(del, inits("i", "j"), sandbox("s", 0, true), has("i", 0, "s", Exited)), "Failed i:Completed/0 j:PodInitializing a:PodInitializing"},
		{"one of two waits", given(del, mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Exited)), "Failed a:Completed/0 b:ContainerStatusUnknown/137"},
		{"one of two runs", given(del, mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Running)), "Pending a:running b:ContainerCreating"},
		{"a container was created and not started", given(del, sandbox("s", 0, true), has("a", 0, "s", Created)), "Failed a:ContainerStatusUnknown/137"},
		{"all have done their work", given(del, mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Exited), has("b", 0, "s", Exited)), "Succeeded a:Completed/0 b:Completed/0"},
		{"one has failed", given(del, mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Exited), has("b", 0, "s", Exited, code(3))), "Failed a:Completed/0 b:Error/3"},
		{"a crash loop", given(del, sandbox("s", 0, true), has("a", 7, "s", Exited, code(1), step(5), ran(2*time.Second, time.Second))), "Failed a:Error/1"},
		{"it was turned away before", given(del, prior(rejected)), "Failed a:ContainerCreating"},
	} {
		first := Status(c.in)
		if got := endOf(&first); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if !final(first.Phase) {
			continue
		}
		for _, cs := range slices.Concat(first.InitContainerStatuses, first.ContainerStatuses) {
			if e := cs.State.Terminated; e != nil && (e.StartedAt.IsZero() || e.FinishedAt.IsZero()) {
				t.Errorf("%s: %s began at %s and ended at %s", c.name, cs.Name, e.StartedAt, e.FinishedAt)
			}
		}
		// What the runtime had is removed, the agent may start anew: nothing is told otherwise.
		c.in.Prior, c.in.Observed, c.in.Failures = first, Observed{}, map[Key]Failure{}
		c.in.Now = now.Add(time.Minute)
		if again := Status(c.in); endOf(&again) != c.want || !equality.Semantic.DeepEqual(first.ContainerStatuses, again.ContainerStatuses) {
			t.Errorf("%s: later %s, want %s", c.name, endOf(&again), c.want)
		}
	}
}
