package agent

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/podstarts"
)

// TestTrace: the agent remembers how a pod's start went, in the order in which it went, until the API server knows that the pod is ready.
func TestTrace(t *testing.T) {
	b := newBench(t)
	b.create(pod("before", func(p *v1.Pod) { p.Spec.Containers[0].Name = "other" }))
	b.status("before", "is ready", isReady)
	b.stop()
	b.cfg.Timeline = podstarts.New(podstarts.Config{})
	b.start()
	b.create(pod("p"))
	b.status("p", "is ready", isReady)
	b.eventually("the status was written", func() bool { return len(stepsOf(b, "p", podstarts.Ready.WriteName())) > 0 })

	last := podstarts.Step{}
	for _, name := range []string{
		podstarts.Seen, "CreateSandbox", podstarts.CallRunSandbox, "StartContainer", podstarts.InspectImage, podstarts.Configure,
		podstarts.CallCreateContainer, podstarts.CallStartContainer, podstarts.Runs, podstarts.Ready.SetName(), podstarts.Ready.WriteName(),
	} {
		found := stepsOf(b, "p", name)
		if len(found) != 1 {
			t.Errorf("%d steps %q, want 1", len(found), name)
			continue
		}
		s := found[0]
		if s.Begin.Before(last.Begin) || s.End.Before(s.Begin) || s.Outcome != "" {
			t.Errorf("%q is from %s to %s (%s), and was to come after %q, which began at %s", name, s.Begin, s.End, s.Outcome, last.Name, last.Begin)
		}
		last = s
	}
	b.rt.Exit(b.running("a"), 1)
	b.status("p", "was restarted", isRestarted)
	if n := len(stepsOf(b, "p", "StartContainer")); n != 1 {
		t.Errorf("%d starts of a pod whose start is over", n)
	}
	if _, known := b.cfg.Timeline.Pod("default", "before"); known {
		t.Error("a pod that an earlier agent has begun with has a time line")
	}
}

// TestTraceOfAFailure: a step that fails says why.
func TestTraceOfAFailure(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.cfg.Timeline = podstarts.New(podstarts.Config{})
	b.start()
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "missing", v1.PullNever
	}))
	b.eventually("the start has failed", func() bool {
		return slices.ContainsFunc(stepsOf(b, "p", "StartContainer"), func(s podstarts.Step) bool { return s.Outcome == "ErrImageNeverPull" && !s.End.IsZero() })
	})
}

func stepsOf(b *bench, pod, name string) []podstarts.Step {
	line, _ := b.cfg.Timeline.Pod("default", pod)
	return slices.DeleteFunc(line.Steps, func(s podstarts.Step) bool { return s.Name != name })
}
