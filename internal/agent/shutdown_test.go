package agent

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/agent/shutdown/turns"
)

// shuttable is an agent whose node can be shut down.
func shuttable(t *testing.T) (*bench, *shutdown.Manager) {
	t.Helper()
	b := newBench(t)
	b.restart()
	return b, b.cfg.Shutdown
}

// restart starts another agent, with another manager of the shutdown.
func (b *bench) restart() {
	b.Helper()
	b.stop()
	b.cfg.Shutdown = shutdown.New(shutdown.Config{Log: b.cfg.Log})
	b.start()
}

func named(container string, change ...func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Name = container
		for _, c := range change {
			c(p)
		}
	}
}

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }
func grace(s int64) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &s }
}
func policy(r v1.RestartPolicy) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.RestartPolicy = r } }
func names(pods []shutdown.Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return all
}

// finished waits until the shutdown is.
func (b *bench) finished(m *shutdown.Manager) shutdown.Status {
	b.Helper()
	b.eventually("the shutdown is finished", func() bool { return m.Status().Finished })
	return m.Status()
}

func disrupted(st v1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == "TerminationByKubelet" &&
			c.Message == "Pod was terminated in response to imminent node shutdown."
	})
}

func (b *bench) nodeReady() (ready v1.NodeCondition) {
	b.Helper()
	n, err := b.kube.CoreV1().Nodes().Get(b.Context(), "node", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			ready = c
		}
	}
	return ready
}

// TestAShutdown: pods end in turns, each with a kubelet's words; those that come meanwhile are turned away; an agent that is started again takes pods.
func TestAShutdown(t *testing.T) {
	b, m := shuttable(t)
	b.rt.Deaf("web") // it is up to its grace
	b.create(pod("web", named("web", grace(1))))
	b.create(pod("critical", named("critical", priority(turns.SystemCritical))))
	b.create(pod("job", named("job", policy(v1.RestartPolicyNever))))
	b.create(pod("done", named("done", policy(v1.RestartPolicyNever))))
	b.create(pod("waits", wantsWidget)) // for a device that is not there
	for _, name := range []string{"web", "critical", "job", "done"} {
		b.running(name)
	}
	b.rt.Exit(b.running("done"), 0)
	b.phase("done", v1.PodSucceeded)
	b.status("waits", "waits", func(st v1.PodStatus) bool { return st.StartTime != nil })

	if !m.Begin(shutdown.Drain, turns.TwoPhases(2*time.Hour, time.Hour)) {
		t.Error("the first one joins another")
	}
	if m.Begin(shutdown.Drain, turns.TwoPhases(time.Second, 0)) {
		t.Error("the second one does not join the first")
	}
	b.eventually("the node is not ready", func() bool {
		c := b.nodeReady()
		return c.Status == v1.ConditionFalse && c.Reason == "KubeletNotReady" && c.Message == "node is shutting down"
	})
	b.create(pod("late"))
	late := b.phase("late", v1.PodFailed)
	if late.Reason != "NodeShutdown" || late.Message != "Pod was rejected: Pod was rejected as the node is shutting down." || disrupted(late) {
		t.Errorf("one that comes late: %+v", late)
	}
	b.create(pod("late critical", priority(turns.SystemCritical)))
	if st := b.phase("late critical", v1.PodFailed); st.Reason != "NodeShutdown" {
		t.Errorf("a critical one that comes late: %+v", st)
	}

	end := b.finished(m)
	if !end.Active || !end.Known || len(end.Pods) > 0 || end.Turn != 2 || end.Turns != 2 {
		t.Errorf("%+v", end)
	}
	for _, name := range []string{"web", "critical", "job", "waits"} {
		st := b.phase(name, v1.PodFailed)
		if st.Reason != "Terminated" || st.Message != "Pod was terminated in response to imminent node shutdown." || !disrupted(st) {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if st := b.phase("done", v1.PodSucceeded); st.Reason != "" || disrupted(st) {
		t.Errorf("one that had ended by itself: %+v", st)
	}
	calls := b.rt.Calls()
	stopped := func(name string) int {
		return slices.IndexFunc(calls, func(c string) bool {
			return isStop(c) && b.rt.Config(c[len("StopContainer "):]).GetMetadata().GetName() == name
		})
	}
	if web, critical := stopped("web"), stopped("critical"); web < 0 || critical < web {
		t.Errorf("the critical pod was not the last: %q", calls)
	}
	b.eventually("it is told of the node", func() bool { return b.events()["NodeShutdown"] > 0 })

	b.restart()
	b.eventually("the node is ready", func() bool { return b.nodeReady().Status == v1.ConditionTrue })
	b.create(pod("next", named("next")))
	b.phase("next", v1.PodRunning)
	b.phase("web", v1.PodFailed)
	if ids := b.rt.Running("web"); len(ids) > 0 {
		t.Error("a pod that was ended runs again")
	}
}

// TestWhoFinishesMeanwhile: a critical pod that ends by itself before its turn keeps its end, and holds up nobody; a pod that is being deleted has no more
// time than others.
func TestWhoFinishesMeanwhile(t *testing.T) {
	b, m := shuttable(t)
	b.rt.Deaf("web")
	b.rt.Deaf("deleted")
	b.create(pod("web", named("web", grace(3600))))
	b.create(pod("deleted", named("deleted", grace(3600))))
	b.create(pod("critical", named("critical", priority(turns.SystemCritical), policy(v1.RestartPolicyNever))))
	for _, name := range []string{"web", "deleted", "critical"} {
		b.running(name)
	}
	b.delete("deleted", 3600)
	b.eventually("it is being stopped", func() bool { return slices.ContainsFunc(b.rt.Calls(), isStop) })
	m.Begin(shutdown.Drain, []turns.Period{{Priority: 0, Grace: 2 * time.Second}, {Priority: turns.SystemCritical, Grace: time.Hour}})
	b.rt.Exit(b.running("critical"), 7)
	if st := b.phase("critical", v1.PodFailed); st.Reason != "" || disrupted(st) {
		t.Errorf("one that has failed by itself: %+v", st)
	}
	b.noPod("deleted")
	b.phase("web", v1.PodFailed)
	if end := b.finished(m); len(end.Pods) > 0 {
		t.Errorf("%v still run", names(end.Pods))
	}
}

// TestTheTimeIsOver: a pod that cannot be stopped does not hold the shutdown up for ever, and is named.
func TestTheTimeIsOver(t *testing.T) {
	b, m := shuttable(t)
	b.create(pod("web", named("web")))
	b.running("web")
	b.rt.Fail("StopContainer", status.Error(codes.Internal, "it is stuck"))
	defer b.rt.Fail("StopContainer", nil)
	m.Begin(shutdown.Drain, turns.TwoPhases(time.Second, 0))
	if got := names(b.finished(m).Pods); !slices.Equal(got, []string{"web"}) {
		t.Errorf("%q still run", got)
	}
}

// TestACancelledShutdown: one that logind has begun ends when it says so, one that was asked for does not.
func TestACancelledShutdown(t *testing.T) {
	b, m := shuttable(t)
	m.Begin(shutdown.Logind, turns.TwoPhases(time.Hour, 0))
	b.eventually("the node is not ready", func() bool { return b.nodeReady().Status == v1.ConditionFalse })
	m.Cancel()
	b.eventually("the node is ready", func() bool { return b.nodeReady().Status == v1.ConditionTrue })
	b.create(pod("p"))
	b.phase("p", v1.PodRunning)
	m.Begin(shutdown.Drain, turns.TwoPhases(time.Hour, 0))
	m.Cancel()
	b.phase("p", v1.PodFailed)
}
