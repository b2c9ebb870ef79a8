package shutdown

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/shutdown/turns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience only ends a test that has failed.
const patience = time.Minute

// node is one whose pods the test has.
type node struct {
	m       *Manager
	changed chan struct{}
	events  chan string

	mu    sync.Mutex // guards what follows
	pods  []Pod
	known bool
}

func (n *node) Pods() ([]Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods, n.known
}

func (n *node) Changed()             { n.changed <- struct{}{} }
func (n *node) Event(message string) { n.events <- message }

// has are the pods from now on.
func (n *node) has(pods ...Pod) {
	n.mu.Lock()
	n.pods, n.known = pods, true
	n.mu.Unlock()
	n.m.Rested()
}

// run runs a manager until the test ends.
func run(t *testing.T, cfg Config) (*Manager, *node) {
	t.Helper()
	m := New(cfg)
	n := &node{m: m, changed: make(chan struct{}, 100), events: make(chan string, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx, n)
	}()
	t.Cleanup(func() { cancel(); await(t, "the end", done) })
	return m, n
}

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// until waits until the status is as wanted.
func until(t *testing.T, m *Manager, what string, ok func(Status) bool) Status {
	t.Helper()
	ticks, stop := m.Watch()
	defer stop()
	for {
		if s := m.Status(); ok(s) {
			return s
		}
		await(t, what, ticks)
	}
}

func withPriorities(priorities ...int32) (all []*v1.Pod) {
	for _, p := range priorities {
		all = append(all, &v1.Pod{Spec: v1.PodSpec{Priority: &p}})
	}
	return all
}

func TestTurns(t *testing.T) {
	m, n := run(t, Config{})
	web, critical := Pod{Name: "web"}, Pod{Name: "critical", Priority: turns.SystemCritical}
	specs := withPriorities(0, turns.SystemCritical)
	if m.Judge(specs[0], true) != nil || m.Judge(specs[0], false) != nil {
		t.Error("pods end while the node goes on")
	}
	if !m.Begin(Drain, turns.TwoPhases(2*time.Hour, time.Hour)) {
		t.Fatal("it does not begin")
	}
	await(t, "the node to be told", n.events)
	await(t, "the pods to be told", n.changed)
	// It is not known which pods there are: none has ended.
	if s := m.Status(); s.Known || s.Finished || s.Turn != 1 {
		t.Errorf("%+v", s)
	}
	n.has(web, critical)
	until(t, m, "the pods to be known", func(s Status) bool { return s.Known && len(s.Pods) == 2 && s.Turn == 1 })
	if v := m.Judge(specs[0], true); v == nil || v.Reason != ReasonTerminated || *v.Grace != 30*time.Second || v.Since.IsZero() {
		t.Errorf("one whose turn it is: %+v", v)
	}
	if m.Judge(specs[1], true) != nil {
		t.Error("a critical pod ends at once")
	}
	if v := m.Judge(specs[1], false); v == nil || v.Reason != ReasonRejected || v.Condition != nil {
		t.Errorf("one that comes: %+v", v)
	}
	far := time.Now().Add(24 * time.Hour)
	if by := m.StopBy(specs[0], far); !by.Before(far) {
		t.Error("one that is being deleted has more time than others")
	}
	if by := m.StopBy(specs[1], far); !by.Equal(far) || !m.StopBy(specs[0], time.Time{}).IsZero() {
		t.Error("who has no turn, or is not deleted, is to have ended")
	}
	web.Ended = true
	n.has(web, critical)
	await(t, "the pods to be told", n.changed)
	until(t, m, "the last turn", func(s Status) bool { return s.Turn == 2 && !s.Finished })
	if v := m.Judge(specs[1], true); v == nil {
		t.Error("the critical pod does not end")
	}
	critical.Ended = true
	n.has(web, critical) // the API server knows of neither
	until(t, m, "the turns to be over", func(s Status) bool { return s.Until.Before(time.Now()) && !s.Finished })
	n.has()
	until(t, m, "the end", func(s Status) bool { return s.Finished && len(s.Pods) == 0 })
}

func TestFaults(t *testing.T) {
	m := New(Config{})
	broken := errors.New("it does not answer")
	other, err := "", error(nil)
	faults := m.Faults(func(context.Context) (string, error) { return other, err })
	check := func(want string, wantErr error) {
		t.Helper()
		if got, err := faults(t.Context()); got != want || !errors.Is(err, wantErr) {
			t.Errorf("%q, %v", got, err)
		}
	}
	check("", nil)
	m.Begin(Logind, turns.TwoPhases(time.Hour, 0))
	check("node is shutting down", nil)
	other = "no network"
	check("no network, node is shutting down", nil)
	err = broken
	check("no network", broken)
	m.Cancel()
	err = nil
	check("no network", nil)
}

// TestPrepare: the machine waits until the pods have ended, and no longer than it says.
func TestPrepare(t *testing.T) {
	periods := turns.TwoPhases(3*time.Hour, time.Hour)
	m, n := run(t, Config{Periods: periods, Bus: "unix:path=/nonexistent"}) // logind is the test
	n.has(Pod{Name: "web"})
	prepare := func(limit time.Duration) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.Prepare(t.Context(), limit)
		}()
		return done
	}
	await(t, "the limit", prepare(time.Millisecond))
	if s := m.Status(); !s.Active || s.Until.Sub(s.Begun) > time.Millisecond {
		t.Errorf("the turns are not squeezed: %+v", s)
	}
	await(t, "the node to be told", n.events)
	m.Cancel()
	await(t, "the node to be told", n.events)
	done := prepare(time.Hour)
	until(t, m, "the pods to be ended", func(s Status) bool { return s.Active && len(s.Pods) == 1 })
	n.has()
	await(t, "the end", done)
	if m.Wants() != 3*time.Hour {
		t.Errorf("wants %s", m.Wants())
	}
}
