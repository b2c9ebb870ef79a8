// Package probes asks the startup, liveness and readiness probes of all containers of the node, and knows what they say.
//
// It guarantees that a probe never overlaps itself, that a container which replaces another one begins afresh, that what an attempt found is dropped
// when its container has been replaced or is to be probed no more, and that after Forget nothing of a pod is left. When a probe is due and what
// its answers mean is decided by package judge; it is carried out by handlers. What follows from the facts is decided by others.
//
//	Set --> containers --> queue (by due time) --> [ Run: one goroutine, one timer ] --> an attempt: a goroutine while it lasts
//	             ^                                                                              |
//	             +------------------------------ judge.Answer <---------------------------------+--> events, changed()
package probes

import (
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/handlers"
	"monopod.dev/monopod/internal/agent/probes/judge"
	"monopod.dev/monopod/internal/kit/ids"
)

// Handlers carries a probe out once.
type Handlers interface {
	Probe(ctx context.Context, on handlers.Subject, what *v1.ProbeHandler, timeout time.Duration) handlers.Answer
}

// Config configures a Manager.
type Config struct {
	Handlers Handlers
	// Events tells an event of a container; kind is v1.EventTypeWarning or -Normal. It must not wait. nil: nobody is told.
	Events func(pod *v1.Pod, container *v1.Container, kind, reason, message string)
	// InFlight is how many probes may be asked at the same time; those beyond are asked late. 0: DefaultInFlight.
	InFlight int
	Log      *slog.Logger
}

// DefaultInFlight lets a thousand probes wait for servers that do not answer.
const DefaultInFlight = 1000

// adoptedBefore is how long before the Manager a container must have started to count as one that was there before; one that has just started is
// probed as a new one is.
const adoptedBefore = 10 * time.Second

// Manager is safe for concurrent use.
type Manager struct {
	cfg   Config
	began time.Time
	wake  chan struct{}
	runs  sync.WaitGroup

	mu       sync.Mutex // guards what follows, and all that it leads to
	pods     map[types.UID]*pod
	queue    queue
	inFlight int
	// sleeps is until when Run sleeps, zero: until it is woken.
	sleeps time.Time
}

// New makes a Manager, which asks nothing before Run.
func New(cfg Config) *Manager {
	if cfg.InFlight == 0 {
		cfg.InFlight = DefaultInFlight
	}
	return &Manager{cfg: cfg, began: time.Now(), wake: make(chan struct{}, 1), pods: map[types.UID]*pod{}}
}

// Target is a container that runs.
type Target struct {
	Pod       *v1.Pod
	Container *v1.Container
	// ID is the container's at the runtime: another one is another container. A target without one is left out.
	ID ids.ContainerID
	// IP is the pod's first address, the host's of a pod with hostNetwork.
	IP string
	// StartedAt is when the container started.
	StartedAt time.Time
	// Started: its startup probe is known to have passed, before a restart of the agent.
	Started bool
	// Terminating: its pod is being deleted, or ends. Liveness and startup probes end, readiness goes on.
	Terminating bool
}

// pod is what is probed of a pod, and has been.
type pod struct {
	changed    func()
	containers map[ids.ContainerID]*container
	counts     map[counted]*counts
}

// container is one that is probed.
type container struct {
	pod    *pod
	target Target
	judge  judge.Container
	// probes are its probes; those that it has not are unused.
	probes [judge.Kinds]probe
	// gone: it is to be probed no more.
	gone bool
}

// probe is one probe of a container.
type probe struct {
	of   *container
	kind judge.Kind
	spec *v1.Probe
	// due is its place in the queue, at is its index there, or -1.
	due time.Time
	at  int
	// cancel ends the attempt that is under way; nil: there is none.
	cancel context.CancelFunc
	counts *counts
}

// Set says which containers of a pod run and are to be probed, in the place of what was said before. Those that were there already go on undisturbed;
// of those that are not there any more nothing is known from now on. changed is called, by any goroutine and without a lock held, whenever a fact of the
// pod has changed since; not for what Set itself changes.
func (m *Manager) Set(uid types.UID, targets []Target, changed func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		if len(targets) == 0 {
			return
		}
		p = &pod{containers: map[ids.ContainerID]*container{}, counts: map[counted]*counts{}}
		m.pods[uid] = p
	}
	p.changed = changed
	kept := 0
	for i := range targets {
		if targets[i].ID != "" {
			m.set(p, &targets[i])
			kept++
		}
	}
	if len(p.containers) > kept {
		for id, c := range p.containers {
			if !has(targets, id) {
				m.drop(c)
				delete(p.containers, id)
			}
		}
	}
	m.wakeIfDue()
}

func has(targets []Target, id ids.ContainerID) bool {
	for i := range targets {
		if targets[i].ID == id {
			return true
		}
	}
	return false
}

func (m *Manager) set(p *pod, t *Target) {
	c := p.containers[t.ID]
	if c != nil && !sameProbes(c.target.Container, t.Container) {
		m.drop(c)
		c = nil
	}
	if c == nil {
		p.containers[t.ID] = m.add(p, t)
		return
	}
	was := c.target
	c.target = *t
	if t.Started && !was.Started {
		c.judge.Start(time.Now())
		m.schedule(c)
	}
	if t.Terminating && !c.judge.Terminating() {
		c.judge.Terminate()
		m.schedule(c)
	}
}

// add begins the probes of a container.
func (m *Manager) add(p *pod, t *Target) *container {
	c := &container{pod: p, target: *t}
	spec := judge.Spec{
		Probes:    [judge.Kinds]*v1.Probe{t.Container.StartupProbe, t.Container.LivenessProbe, t.Container.ReadinessProbe},
		StartedAt: t.StartedAt, Started: t.Started, Terminating: t.Terminating,
		Adopted: t.StartedAt.Before(m.began.Add(-adoptedBefore)),
	}
	for k := range judge.Kinds {
		spec.Spread[k] = rand.Float64()
		c.probes[k] = probe{of: c, kind: k, spec: spec.Probes[k], at: -1}
		if spec.Probes[k] != nil {
			c.probes[k].counts = p.countsOf(t, k)
		}
	}
	c.judge = judge.Begin(spec, time.Now())
	m.schedule(c)
	return c
}

// drop ends the probes of a container.
func (m *Manager) drop(c *container) {
	c.gone = true
	m.schedule(c)
}

// schedule brings the queue up to date with what is due of a container.
func (m *Manager) schedule(c *container) {
	for k := range c.probes {
		p := &c.probes[k]
		due, ok := c.judge.Due(p.kind)
		ok = ok && !c.gone
		switch {
		case p.cancel != nil:
			// It is asked just now. When it is to be asked again is said when that has ended.
			if !ok {
				p.cancel()
			}
		case ok && p.at < 0:
			p.due = due
			heap.Push(&m.queue, p)
		case ok && !p.due.Equal(due):
			p.due = due
			heap.Fix(&m.queue, p.at)
		case !ok && p.at >= 0:
			heap.Remove(&m.queue, p.at)
		}
	}
}

// Forget ends all probes of a pod. What was known of it is gone, and its series with it; changed is not called by what begins after this.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return
	}
	for _, c := range p.containers {
		m.drop(c)
	}
	delete(m.pods, uid)
}
