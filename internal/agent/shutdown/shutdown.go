// Package shutdown ends the node's pods before the machine stops, or because somebody asks for it: in turns (package turns), with a kubelet's words.
//
// It guarantees that a shutdown has a deadline that nothing moves further away, that pods which come meanwhile are turned away, and that it can be asked for at any
// time and by several: the later ones join the first. It is not remembered: an agent that is started again takes pods.
package shutdown

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/shutdown/logind"
	"monopod.dev/monopod/internal/agent/shutdown/turns"
)

// Default is what pods have when somebody asks for a shutdown, and nothing says how long they are to have.
var Default = turns.TwoPhases(30*time.Second, 10*time.Second)

// lingerTime is how long, after the last turn, it is waited for what was killed to be gone and for the API server to know it.
const lingerTime = 5 * time.Second

// fault is why a node that shuts down is not ready, in a kubelet's words.
const fault = "node is shutting down"

// Source says who has asked for a shutdown.
type Source string

// The sources.
const (
	Logind Source = "logind"
	Drain  Source = "drain"
)

// Pod is one that has not come to rest.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Priority        int32
	// Ended: nothing of it runs any more, but the API server does not know that.
	Ended bool
}

// Node is what the agent does for a shutdown. Its methods are safe for concurrent use.
type Node interface {
	// Pods are those that have not come to rest; known false: it is not known yet which there are.
	Pods() (pods []Pod, known bool)
	// Changed tells all pods, and who reports the node, that Judge and Faults may answer otherwise.
	Changed()
	// Event tells of the node.
	Event(message string)
}

// Config configures a Manager.
type Config struct {
	// Periods are what pods have when the machine stops; none: logind is not watched.
	Periods []turns.Period
	// Bus is the address of the message bus; empty: the system bus.
	Bus string
	Log *slog.Logger
}

// Status is how far a shutdown is.
type Status struct {
	// Active: the node shuts down, or has.
	Active bool
	// Begun is when that has begun, Until by when it is over at the latest, Turn of Turns whose turn it is, from 1.
	Begun, Until time.Time
	Turn, Turns  int
	// Finished: all pods have come to rest, or there is no time left for those of Pods.
	Finished bool
	// Known: it is known which pods there are. Pods are those that have not come to rest.
	Known bool
	Pods  []Pod
}

// Manager has the shutdown of one node. It is safe for concurrent use; its methods but Run return at once.
type Manager struct {
	cfg  Config
	wake chan struct{}

	mu sync.Mutex // guards what follows
	// course is nil while the node does not shut down.
	course *turns.Course
	source Source
	// told: Run has told of the course, or of its end.
	told     bool
	status   Status
	watchers map[chan struct{}]bool
}

// New makes a manager; nothing is watched before Run.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{cfg: cfg, wake: make(chan struct{}, 1), watchers: map[chan struct{}]bool{}}
}

// Begin begins a shutdown in which pods have these periods; false: there is one already, which goes on as it is.
func (m *Manager) Begin(source Source, periods []turns.Period) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.course != nil {
		return false
	}
	course := turns.Begin(periods, time.Now())
	m.course, m.source, m.told = &course, source, false
	m.status = Status{Active: true}
	m.describe()
	m.poke()
	return true
}

// Cancel ends a shutdown that logind has begun: the machine goes on. Pods that have been told to end do.
func (m *Manager) Cancel() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.course == nil || m.source != Logind {
		return
	}
	m.course, m.told = nil, false
	m.status = Status{}
	m.tick()
	m.poke()
}

// Status is how far the shutdown is.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Pods = slices.Clone(s.Pods)
	return s
}

// Watch ticks whenever Status may answer otherwise, until stop is called.
func (m *Manager) Watch() (ticks <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[c] = true
	return c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, c)
	}
}

// Rested tells that a pod may have come to rest.
func (m *Manager) Rested() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.course != nil {
		m.poke()
	}
}

// Faults adds to those for which the node is not ready; empty: there are none.
func (m *Manager) Faults(others func(context.Context) (string, error)) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		other, err := others(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case m.course == nil || err != nil:
			return other, err
		case other == "":
			return fault, nil
		}
		return other + ", " + fault, nil
	}
}

// poke has Run look. m.mu is held, or need not be.
func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// tick tells those who watch. m.mu is held.
func (m *Manager) tick() {
	for c := range m.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Run carries shutdowns out until ctx ends, and watches logind if that is configured.
func (m *Manager) Run(ctx context.Context, node Node) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if len(m.cfg.Periods) > 0 {
		wg.Go(func() { logind.Run(ctx, logind.Config{Address: m.cfg.Bus, Node: m, Log: m.cfg.Log}) })
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		}
		if next := m.step(node); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// step looks how far the shutdown is, and tells whom it concerns. next is when to look again if nothing happens.
func (m *Manager) step(node Node) (next time.Time) {
	pods, known := node.Pods()
	now := time.Now()
	m.mu.Lock()
	if m.course == nil {
		cancelled := !m.told && m.source != ""
		m.told = true
		m.mu.Unlock()
		if cancelled {
			m.cfg.Log.Info("the machine does not stop: the node takes pods again")
			node.Event("Shutdown manager detected shutdown cancellation")
			node.Changed()
		}
		return time.Time{}
	}
	begins, was := !m.told, m.course.Turn()
	m.told = true
	course, next := m.course.Next(m.holding(pods, known), now)
	*m.course = course
	m.status.Known, m.status.Pods = known, pods
	finished := m.status.Finished
	if course.Over() {
		next = course.Until().Add(lingerTime)
		m.status.Finished = m.status.Finished || !now.Before(next) || known && len(pods) == 0
		if m.status.Finished {
			next = time.Time{}
		}
	}
	m.describe()
	m.tick()
	turned, finished := begins || course.Turn() != was, m.status.Finished && !finished
	status, source := m.status, m.source
	m.mu.Unlock()

	if begins {
		m.cfg.Log.Info("the node shuts down: its pods end, and it takes no others", "for", source, "pods", len(pods), "until", status.Until)
		node.Event(events[source])
	}
	if turned {
		node.Changed()
	}
	switch {
	case finished && len(pods) == 0 && known:
		m.cfg.Log.Info("all pods have ended", "took", now.Sub(status.Begun))
	case finished:
		m.cfg.Log.Warn("the time of the node's shutdown is over, and pods have not ended", "pods", len(pods), "took", now.Sub(status.Begun))
	}
	return next
}

// events tell why the node shuts down; the first is a kubelet's.
var events = map[Source]string{
	Logind: "Shutdown manager detected shutdown event",
	Drain:  "The node is drained: its pods end, and it takes no others before monopod is started again",
}

// holding are the priorities of the pods that run. Before it is known which there are, each turn has its whole time. m.mu is held.
func (m *Manager) holding(pods []Pod, known bool) (running []int32) {
	if !known {
		return m.course.Priorities()
	}
	for _, p := range pods {
		if !p.Ended {
			running = append(running, p.Priority)
		}
	}
	return running
}

// describe brings the status up to the course. m.mu is held.
func (m *Manager) describe() {
	m.status.Begun, m.status.Until = m.course.Begun(), m.course.Until()
	m.status.Turns = m.course.Turns()
	m.status.Turn = min(m.course.Turn()+1, m.status.Turns)
}

// Prepare ends the pods because the machine stops (logind.Node).
func (m *Manager) Prepare(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticks, stop := m.Watch()
	defer stop()
	m.Begin(Logind, turns.Squeeze(m.cfg.Periods, limit))
	for {
		if s := m.Status(); !s.Active || s.Finished {
			return
		}
		select {
		case <-ticks:
		case <-ctx.Done():
			return
		}
	}
}

// Wants is how long pods have (logind.Node).
func (m *Manager) Wants() time.Duration { return turns.Total(m.cfg.Periods) }
