package probes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/agent/handlers"
	"monopod.dev/monopod/internal/kit/ids"
)

// node is a Manager that runs, in a bubble of synctest, with handlers that answer what the test says.
type node struct {
	*testing.T
	*Manager
	began time.Time

	mu sync.Mutex // guards what follows
	// answer is what a container answers to a path; nil, or a zero answer: success.
	answer func(ctx context.Context, id ids.ContainerID, path string) handlers.Answer
	asked  []string
	events []string
	// busy are the probes that are under way, and most is how many there were at once.
	busy map[string]bool
	most int
}

// bubble runs a test with a node. All goroutines have to end with it, or the bubble fails.
func bubble(t *testing.T, inFlight int, test func(n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, began: time.Now(), busy: map[string]bool{}}
		n.Manager = New(Config{Handlers: n, Events: n.event, InFlight: inFlight, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.Manager.Run(ctx)
		}()
		test(n)
		cancel()
		<-ended
	})
}

func (n *node) Probe(ctx context.Context, on handlers.Subject, what *v1.ProbeHandler, _ time.Duration) handlers.Answer {
	key := string(on.ID) + what.HTTPGet.Path
	n.mu.Lock()
	n.asked = append(n.asked, fmt.Sprintf("%v %s", time.Since(n.began), key))
	if n.busy[key] {
		n.Errorf("%s is asked twice at the same time", key)
	}
	n.busy[key] = true
	n.most = max(n.most, len(n.busy))
	answer := n.answer
	n.mu.Unlock()
	a := handlers.Answer{Result: handlers.Success}
	if answer != nil {
		a = answer(ctx, on.ID, what.HTTPGet.Path)
	}
	n.mu.Lock()
	delete(n.busy, key)
	n.mu.Unlock()
	return a
}

func (n *node) event(pod *v1.Pod, container *v1.Container, kind, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, strings.Join([]string{kind, reason, pod.Name, container.Name, message}, "|"))
}

// answers sets what all containers answer.
func (n *node) answers(a func(ctx context.Context, id ids.ContainerID, path string) handlers.Answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = a
}

// pass has time pass, which takes none in a bubble.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // in a bubble of testing/synctest it awaits all others

// take waits until nothing moves any more, and is what was asked since the last time.
func (n *node) take() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	return asked
}

func (n *node) wants(want ...string) {
	n.Helper()
	if got := n.take(); !slices.Equal(got, want) {
		n.Errorf("asked were %q, want %q", got, want)
	}
}

func (n *node) fact(uid types.UID, id ids.ContainerID) Facts {
	n.Helper()
	f, ok := n.Facts(uid)[id]
	if !ok {
		n.Fatalf("nothing is known of %s", id)
	}
	return f
}

// get is a probe of a path each ten seconds, which counts from the first attempt on.
func get(path string) *v1.Probe {
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(80)}},
		InitialDelaySeconds: 1, PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}
}

func target(uid, id string, startup, liveness, readiness *v1.Probe) Target {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "ns", "pod-"+uid, types.UID(uid)
	c := &v1.Container{Name: "app", StartupProbe: startup, LivenessProbe: liveness, ReadinessProbe: readiness}
	return Target{Pod: pod, Container: c, ID: ids.ContainerID(id), IP: "10.0.0.1", StartedAt: time.Now()}
}

func fails(what string) func(context.Context, ids.ContainerID, string) handlers.Answer {
	return func(_ context.Context, _ ids.ContainerID, path string) handlers.Answer {
		if path == what {
			return handlers.Answer{Result: handlers.Failure, Output: "no"}
		}
		return handlers.Answer{Result: handlers.Success}
	}
}

func TestFactsAndEvents(t *testing.T) {
	bubble(t, 0, func(n *node) {
		var changes atomic.Int32
		x := target("p", "1", nil, get("/live"), get("/ready"))
		grace := int64(7)
		x.Container.LivenessProbe.TerminationGracePeriodSeconds = &grace
		n.Set("p", []Target{x}, func() {
			n.Facts("p") // no lock is held
			changes.Add(1)
		})
		if f := n.fact("p", "1"); f != (Facts{Started: Yes, Ready: NotKnown}) {
			t.Errorf("before any answer %+v is known", f)
		}
		n.wants()
		pass(time.Second)
		n.take()
		if f := n.fact("p", "1"); f != (Facts{Started: Yes, Ready: Yes}) || changes.Load() != 1 {
			t.Errorf("after the first answer %+v is known, and changed was called %d times", f, changes.Load())
		}
		n.answers(fails("/live"))
		pass(10 * time.Second)
		n.take()
		f := n.fact("p", "1")
		if f.Failed == nil || f.Failed.Kind != "Liveness" || f.Failed.Message != "Container app failed liveness probe, will be restarted" || *f.Failed.Grace != 7*time.Second {
			t.Errorf("the failure is %+v", f.Failed)
		}
		// It holds, and only readiness is asked.
		n.answers(func(context.Context, ids.ContainerID, string) handlers.Answer {
			return handlers.Answer{Result: handlers.Warning, Output: "moved"}
		})
		pass(10 * time.Second)
		n.wants("21s 1/ready")
		n.answers(func(context.Context, ids.ContainerID, string) handlers.Answer {
			return handlers.Answer{Result: handlers.Unknown, Output: "away"}
		})
		pass(10 * time.Second)
		n.wants("31s 1/ready", "31s 1/ready", "31s 1/ready")
		if n.fact("p", "1").Failed == nil || n.fact("p", "1").Ready != Yes || changes.Load() != 2 {
			t.Errorf("then %+v is known, and changed was called %d times", n.fact("p", "1"), changes.Load())
		}
		want := []string{
			"Warning|Unhealthy|pod-p|app|Liveness probe failed: no", "Warning|ProbeWarning|pod-p|app|Readiness probe warning: moved",
			"Warning|Unhealthy|pod-p|app|Readiness probe errored and resulted in unknown state: away",
		}
		if !slices.Equal(n.events, want) {
			t.Errorf("events: %q", n.events)
		}

		// Another container begins afresh, and of the first one nothing is known.
		n.answers(nil)
		y := target("p", "2", nil, get("/live"), get("/ready"))
		n.Set("p", []Target{y}, nil)
		if all := n.Facts("p"); len(all) != 1 || all["2"] != (Facts{Started: Yes, Ready: NotKnown}) {
			t.Errorf("of the other one %+v is known", all)
		}
		pass(time.Second)
		if got := n.take(); len(got) != 2 {
			t.Errorf("asked were %q", got)
		}
		series := n.Series()
		if len(series) != 2 || series[0].Type != "Liveness" || series[0].Successful != 2 || series[0].Failed != 1 || series[1].Type != "Readiness" ||
			series[1].Successful != 4 || series[1].Unknown != 1 || series[1].Within[0] != 4 || series[1].UID != "p" || series[1].Pod != "pod-p" || series[1].Container != "app" {
			t.Errorf("the counts are %+v", series)
		}
		n.Forget("p")
		pass(time.Minute)
		n.wants()
		if n.Facts("p") != nil || len(n.Series()) != 0 {
			t.Error("a forgotten pod is known")
		}
	})
}

func TestStartup(t *testing.T) {
	bubble(t, 0, func(n *node) {
		n.answers(fails("/start"))
		x := target("p", "1", get("/start"), nil, get("/ready"))
		x.Container.StartupProbe.FailureThreshold = 3
		n.Set("p", []Target{x}, nil)
		pass(9 * time.Second)
		if got := n.take(); len(got) < 2 || slices.ContainsFunc(got, func(s string) bool { return !strings.HasSuffix(s, "/start") }) {
			t.Errorf("asked were %q", got)
		}
		if f := n.fact("p", "1"); f != (Facts{Started: No, Ready: No}) {
			t.Errorf("before it has started %+v is known", f)
		}
		n.answers(nil)
		pass(2 * time.Second)
		n.wants("11s 1/start", "11s 1/ready")
		if f := n.fact("p", "1"); f != (Facts{Started: Yes, Ready: Yes}) {
			t.Errorf("when it has started %+v is known", f)
		}
		if len(n.events) != 1 {
			t.Errorf("events: %q", n.events)
		}
	})
}

// What an attempt finds that was under way when the container was replaced, or its pod deleted, is dropped, and the attempt is broken off.
func TestLateAnswers(t *testing.T) {
	bubble(t, 0, func(n *node) {
		hangs := func(ctx context.Context, _ ids.ContainerID, path string) handlers.Answer {
			<-ctx.Done()
			return handlers.Answer{Result: handlers.Failure}
		}
		n.answers(hangs)
		changed := func() { t.Error("a fact has changed") }
		n.Set("p", []Target{target("p", "1", nil, get("/live"), nil)}, changed)
		pass(time.Second)
		n.wants("1s 1/live")
		n.Set("p", []Target{target("p", "2", nil, get("/live"), nil)}, changed)
		pass(time.Second)
		n.wants("2s 2/live")
		y := target("p", "2", nil, get("/live"), nil)
		y.Terminating = true
		n.Set("p", []Target{y}, changed)
		pass(time.Minute)
		n.wants()
		if f := n.fact("p", "2"); f.Failed != nil {
			t.Errorf("it has failed: %+v", f.Failed)
		}
		n.Set("p", []Target{target("p", "3", nil, get("/live"), nil)}, changed)
		pass(time.Second)
		n.Forget("p")
		synctest.Wait()
		if len(n.busy) != 0 || len(n.events) != 0 {
			t.Errorf("busy are %v, events %q", n.busy, n.events)
		}
	})
}

// Set with what is there already disturbs nothing, also with newer objects, and an address that has changed is asked from then on.
func TestSetAgain(t *testing.T) {
	bubble(t, 0, func(n *node) {
		x := target("p", "1", nil, nil, get("/ready"))
		n.Set("p", []Target{x, {Pod: x.Pod, Container: x.Container}}, nil)
		for range 10 {
			pass(300 * time.Millisecond)
			newer := x
			newer.Container = x.Container.DeepCopy()
			newer.Pod = x.Pod.DeepCopy()
			n.Set("p", []Target{newer}, nil)
		}
		n.wants("1s 1/ready")
		other := x
		other.Container = x.Container.DeepCopy()
		other.Container.ReadinessProbe.HTTPGet.Path = "/other"
		other.StartedAt = time.Now()
		n.Set("p", []Target{other}, nil)
		pass(time.Second)
		n.wants("4s 1/other")
		n.Set("p", nil, nil)
		pass(time.Minute)
		n.wants()
		if len(n.Facts("p")) != 0 || len(n.Series()) != 1 {
			t.Errorf("known are %v, and counted %v", n.Facts("p"), n.Series())
		}
		// A pod without probes needs no more of us than its facts.
		n.Set("q", []Target{target("q", "9", nil, nil, nil)}, nil)
		if f := n.fact("q", "9"); f != (Facts{Started: Yes, Ready: Yes}) {
			t.Errorf("of a container without probes %+v is known", f)
		}
		n.Set("r", nil, nil)
		if n.Facts("r") != nil {
			t.Error("a pod without targets is known")
		}
	})
}

// After a restart of the agent the probes of what ran before are spread over a period, and what has started is not asked for that.
func TestAdopted(t *testing.T) {
	bubble(t, 0, func(n *node) {
		for i := range 100 {
			x := target(fmt.Sprint(i), fmt.Sprint(i), get("/start"), nil, get("/ready"))
			x.StartedAt, x.Started = x.StartedAt.Add(-time.Hour), true
			n.Set(x.Pod.UID, []Target{x}, nil)
		}
		synctest.Wait()
		for _, half := range []string{"first", "second"} {
			pass(5 * time.Second)
			got := n.take()
			if len(got) < 20 || len(got) > 80 || slices.ContainsFunc(got, func(s string) bool { return !strings.HasSuffix(s, "/ready") }) {
				t.Errorf("in the %s half of the first period asked were %d: %q", half, len(got), got)
			}
		}
	})
}

// A thousand containers of servers that do not answer are asked in turns, and all of them are.
func TestManyInFlight(t *testing.T) {
	bubble(t, 50, func(n *node) {
		n.answers(func(context.Context, ids.ContainerID, string) handlers.Answer {
			pass(100 * time.Millisecond)
			return handlers.Answer{Result: handlers.Success}
		})
		for i := range 1000 {
			id := fmt.Sprint(i)
			n.Set(types.UID(id), []Target{target(id, id, nil, nil, get("/ready"))}, nil)
		}
		pass(3 * time.Second)
		if got := n.take(); len(got) != 1000 || n.most != 50 {
			t.Errorf("%d were asked, %d at the same time", len(got), n.most)
		}
		for i := range 1000 {
			id := fmt.Sprint(i)
			if n.fact(types.UID(id), ids.ContainerID(id)).Ready != Yes {
				t.Fatalf("%s is not ready", id)
			}
			n.Forget(types.UID(id))
		}
		pass(time.Minute)
		n.wants()
	})
}

// It is used by all pods' workers at once, and nothing of it is left. This is without a bubble, so that the race detector sees real threads.
func TestConcurrently(t *testing.T) {
	before := goleak.IgnoreCurrent()
	answered := make(chan struct{}, 1<<16)
	m := New(Config{Log: slog.New(slog.DiscardHandler), Events: func(*v1.Pod, *v1.Container, string, string, string) {}, Handlers: always(func() handlers.Answer {
		select {
		case answered <- struct{}{}:
		default:
		}
		return handlers.Answer{Result: handlers.Failure}
	})})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 500 {
				uid := fmt.Sprint(i%4, "-", j%10)
				x := target(uid, fmt.Sprint(uid, "-", j%3), get("/start"), get("/live"), get("/ready"))
				for _, p := range []*v1.Probe{x.Container.StartupProbe, x.Container.LivenessProbe, x.Container.ReadinessProbe} {
					p.InitialDelaySeconds = 0
				}
				x.Started, x.Terminating = j%2 == 0, j%7 == 0
				m.Set(x.Pod.UID, []Target{x}, func() { m.Facts(x.Pod.UID) })
				m.Facts(x.Pod.UID)
				m.Series()
				if j%5 == 0 {
					m.Forget(x.Pod.UID)
				}
			}
		})
	}
	all.Wait()
	<-answered
	for i := range 4 {
		for j := range 10 {
			m.Forget(types.UID(fmt.Sprint(i, "-", j)))
		}
	}
	if len(m.Series()) != 0 {
		t.Error("there are counts of pods that were forgotten")
	}
	cancel()
	<-ended
	goleak.VerifyNone(t, before)
}

type always func() handlers.Answer

func (a always) Probe(context.Context, handlers.Subject, *v1.ProbeHandler, time.Duration) handlers.Answer {
	return a()
}

func TestMessages(t *testing.T) {
	never, alwaysRestart := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	for _, c := range []struct {
		pod       v1.RestartPolicy
		container *v1.ContainerRestartPolicy
		init      bool
		want      string
	}{
		{v1.RestartPolicyAlways, nil, false, "Container app failed startup probe, will be restarted"},
		{v1.RestartPolicyOnFailure, nil, false, "Container app failed startup probe, will be restarted"},
		{v1.RestartPolicyNever, nil, false, "Container app failed startup probe"},
		{v1.RestartPolicyAlways, &never, false, "Container app failed startup probe"},
		{v1.RestartPolicyNever, &alwaysRestart, false, "Container app failed startup probe, will be restarted"},
		{v1.RestartPolicyNever, &alwaysRestart, true, "Init container app failed startup probe"},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.pod}}
		container := &v1.Container{Name: "app", RestartPolicy: c.container}
		if c.init {
			pod.Spec.InitContainers = []v1.Container{*container}
		}
		if got := message(pod, container, "failed startup probe"); got != c.want {
			t.Errorf("with %+v it is %q, want %q", c, got, c.want)
		}
	}
}
