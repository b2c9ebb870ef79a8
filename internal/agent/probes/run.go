package probes

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/handlers"
	"monopod.dev/monopod/internal/agent/probes/judge"
)

// Reasons of the events that probes tell.
const (
	Unhealthy    = "Unhealthy"
	ProbeWarning = "ProbeWarning"
)

// attempts is how often a probe is tried that could not be asked.
const attempts = 3

// queue is a heap of the probes that wait, the one that is due first at its top.
type queue []*probe

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].at, q[j].at = i, j }
func (q *queue) Push(x any)        { p := x.(*probe); p.at = len(*q); *q = append(*q, p) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	p.at = -1
	return p
}

// Run asks the probes until the context ends; then those that are under way are broken off, and it returns when they have ended.
func (m *Manager) Run(ctx context.Context) {
	defer m.runs.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.wake:
		}
		if wait, some := m.start(ctx); some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// start begins what is due, and says how long there is nothing more to begin; false: until it is woken.
func (m *Manager) start(ctx context.Context) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.sleeps = time.Time{}
	for len(m.queue) > 0 && m.inFlight < m.cfg.InFlight {
		p := m.queue[0]
		if p.due.After(now) {
			m.sleeps = p.due
			return p.due.Sub(now), true
		}
		heap.Pop(&m.queue)
		m.inFlight++
		run, cancel := context.WithCancel(ctx)
		p.cancel = cancel
		t := p.of.target
		m.runs.Go(func() { m.ask(run, p, t) })
	}
	return 0, false
}

// wakeIfDue wakes Run if what is due first is due before Run would look. It is called with the lock held.
func (m *Manager) wakeIfDue() {
	if len(m.queue) == 0 || m.inFlight >= m.cfg.InFlight || !m.sleeps.IsZero() && !m.queue[0].due.Before(m.sleeps) {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// ask is one attempt of a probe, t what its target was when it began.
func (m *Manager) ask(ctx context.Context, p *probe, t Target) {
	begun := time.Now()
	on := handlers.Subject{Pod: t.Pod, Container: t.Container, ID: t.ID, IP: t.IP}
	timeout := time.Duration(max(p.spec.TimeoutSeconds, 1)) * time.Second
	var answer handlers.Answer
	for range attempts {
		answer = m.cfg.Handlers.Probe(ctx, on, &p.spec.ProbeHandler, timeout)
		if answer.Result != handlers.Unknown || ctx.Err() != nil {
			break
		}
	}
	told, changed := m.answered(ctx, p, answer, time.Since(begun))
	if told {
		if answer.Result != handlers.Success {
			m.cfg.Log.Debug("a probe did not pass", "pod", t.Pod.Namespace+"/"+t.Pod.Name, "container", t.Container.Name, "probe", p.kind, "output", answer.Output)
		}
		m.tell(p.kind, t, answer)
	}
	if changed != nil {
		changed()
	}
}

var outcomes = map[handlers.Result]judge.Outcome{
	handlers.Unknown: judge.NoAnswer, handlers.Success: judge.Success, handlers.Warning: judge.Success, handlers.Failure: judge.Failure,
}

// answered takes in an answer. It returns whether an event is to tell of it, and what is to be called because facts have changed.
func (m *Manager) answered(ctx context.Context, p *probe, a handlers.Answer, took time.Duration) (told bool, changed func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
	brokenOff := ctx.Err() != nil
	p.cancel()
	p.cancel = nil
	if !brokenOff {
		outcome := outcomes[a.Result]
		p.counts.add(outcome, took)
		var facts bool
		if told, facts = p.of.judge.Answer(p.kind, outcome, time.Now()); facts {
			changed = p.of.pod.changed
		}
	}
	m.schedule(p.of)
	m.wakeIfDue()
	return told, changed
}

// tell tells of an attempt, in a kubelet's words.
func (m *Manager) tell(kind judge.Kind, t Target, a handlers.Answer) {
	if m.cfg.Events == nil {
		return
	}
	switch a.Result {
	case handlers.Unknown:
		m.cfg.Events(t.Pod, t.Container, v1.EventTypeWarning, Unhealthy, fmt.Sprintf("%s probe errored and resulted in unknown state: %s", kind, a.Output))
	case handlers.Failure:
		m.cfg.Events(t.Pod, t.Container, v1.EventTypeWarning, Unhealthy, fmt.Sprintf("%s probe failed: %s", kind, a.Output))
	case handlers.Warning:
		m.cfg.Events(t.Pod, t.Container, v1.EventTypeWarning, ProbeWarning, fmt.Sprintf("%s probe warning: %s", kind, a.Output))
	case handlers.Success:
	}
}
