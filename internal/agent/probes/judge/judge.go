// Package judge decides of the probes of one container: when each is due, and what their answers mean. It is pure: the time and the answers come
// in, what is due and what is known of the container come out.
//
// The rules are a kubelet's (kubernetes.io/docs/concepts/workloads/pods/probes):
//
//	                   +--- no startup probe, or known to have passed ---+
//	                   |                                                 v
//	Begin --> startup probe asks --> passes (successThreshold) --> liveness and readiness ask, by their thresholds
//	                   |                                                 |
//	                   +--> fails (failureThreshold): Failed             +--> liveness fails: Failed. Readiness goes on.
//
// After Failed the probe that failed is silent: what is known holds until the container is replaced. A container that is being terminated is asked
// for its readiness only.
//
// # When
//
// A probe asks first when initialDelaySeconds have passed since the container's start (and, behind a startup probe, when that has passed), then
// every periodSeconds, counted from when the last attempt was due and not from its end. An attempt that took longer than the period is followed by
// one at once; what was due meanwhile is left out.
//
// Without initialDelaySeconds nothing is listening yet at a container's start, and a kubelet comes by at some moment of the first period.
// Here the failures of the first period then do not count and are not told: thresholds begin when it is over. In its place startup and readiness
// probes ask again after 100 ms, 200 ms, 400 ms and so on until they succeed or the period is over, so that what starts fast is ready fast. The same
// holds for the first period after any other beginning, except that its first attempt counts.
//
// Containers that ran before this agent did are first asked at a moment of their own within a period (Spec.Spread), so that not all are asked at once.
package judge

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Kind is one of the three probes of a container.
type Kind int

// The kinds of probes, in the order in which they come into effect.
const (
	Startup Kind = iota
	Liveness
	Readiness
	Kinds
)

// String is a kubelet's name of the kind, in events and metrics.
func (k Kind) String() string { return [...]string{"Startup", "Liveness", "Readiness", "Unknown"}[min(k, Kinds)] }

// Known is what is known of something.
type Known int

// The zero Known is NotKnown.
const (
	NotKnown Known = iota
	Yes
	No
)

// Outcome is how an attempt ended. NoAnswer says nothing about the container, and changes nothing.
type Outcome int

// The outcomes of an attempt.
const (
	NoAnswer Outcome = iota
	Success
	Failure
)

// Spec is what there is to know of a container when its probes begin.
type Spec struct {
	// Probes are the container's, nil for those that it has not.
	Probes [Kinds]*v1.Probe
	// StartedAt is when the container started.
	StartedAt time.Time
	// Started: its startup probe is known to have passed. Terminating: its pod is being deleted.
	Started, Terminating bool
	// Adopted: it ran before this agent did; Spread is then at which part of a period, 0 to 1, each probe comes first.
	Adopted bool
	Spread  [Kinds]float64
}

// Facts are what is known of a container.
type Facts struct {
	// Started is Yes from when the startup probe has passed, and always without one.
	Started Known
	// Ready is No before Started, then what the readiness probe says: NotKnown before one of its thresholds was met. Without that probe it is
	// what Started is.
	Ready Known
	// Failed is the probe by which the container is to be killed, or Kinds: none.
	Failed Kind
}

// Container is the state of the probes of one container. It is a plain value; Begin makes it.
type Container struct {
	startedAt   time.Time
	probes      [Kinds]course
	facts       Facts
	terminating bool
}

// Begin is the state of a container that is seen for the first time now.
func Begin(s Spec, now time.Time) Container {
	c := Container{startedAt: s.StartedAt, facts: Facts{Started: Yes, Failed: Kinds}, terminating: s.Terminating}
	for k, p := range s.Probes {
		if p != nil {
			c.probes[k] = newCourse(p)
		}
	}
	if s.Probes[Startup] != nil && !s.Started {
		c.facts.Started = No
	}
	for k := range Kinds {
		p := &c.probes[k]
		if !p.exists {
			continue
		}
		first, counts := c.earliest(p), p.delay > 0
		switch {
		case s.Adopted && !first.After(now):
			p.begin(now.Add(time.Duration(s.Spread[k]*float64(p.period))), true, false)
		default:
			if first.Before(now) {
				first = now
			}
			// Behind a startup probe this only says at which moments the liveness probe is due.
			p.begin(first, counts, k != Liveness)
		}
	}
	c.hush()
	return c
}

// earliest is when a probe may first ask.
func (c *Container) earliest(p *course) time.Time { return c.startedAt.Add(p.delay) }

// hush silences the probes that must not ask as things are.
func (c *Container) hush() {
	for k := range Kinds {
		p := &c.probes[k]
		switch {
		case k == Startup:
			p.silent = c.facts.Started == Yes || c.facts.Failed == Startup || c.terminating
		case k == Liveness:
			p.silent = c.facts.Started != Yes || c.facts.Failed != Kinds || c.terminating
		default:
			p.silent = c.facts.Started != Yes
		}
	}
}

// Due is when a probe is to ask next; false: not as things are.
func (c *Container) Due(k Kind) (time.Time, bool) {
	p := &c.probes[k]
	return p.due, p.exists && !p.silent
}

// Start says that the startup probe is known to have passed.
func (c *Container) Start(now time.Time) {
	if c.facts.Started == Yes || c.facts.Failed == Startup {
		return
	}
	c.facts.Started = Yes
	// The liveness probe goes by the moments that it had, as if it had been asking; the readiness probe asks at once.
	if p := &c.probes[Liveness]; p.exists {
		p.skipTo(now)
	}
	if p := &c.probes[Readiness]; p.exists {
		first := c.earliest(p)
		if first.Before(now) {
			first = now
		}
		p.begin(first, true, true)
	}
	c.hush()
}

// Terminate says that the pod is being deleted: only readiness matters from now on, and what has failed is to be killed no more.
func (c *Container) Terminate() {
	c.terminating = true
	c.facts.Failed = Kinds
	c.hush()
}

// Terminating tells whether Terminate was said.
func (c *Container) Terminating() bool { return c.terminating }

// Answer takes in how the attempt that was due last has ended, and says when the next one is due. It tells whether an event is to tell of the
// attempt if it failed, and whether the facts have changed. An attempt that must not be any more, as things have become, says nothing.
func (c *Container) Answer(k Kind, o Outcome, now time.Time) (told, changed bool) {
	p := &c.probes[k]
	if !p.exists || p.silent {
		return false, false
	}
	counts := p.counts || o == Success
	met := counts && o != NoAnswer && p.count(o)
	p.next(o, now)
	if !met {
		return counts, false
	}
	was := c.Facts()
	switch {
	case k == Startup && o == Success:
		c.Start(now)
	case k == Readiness && o == Success:
		c.facts.Ready = Yes
	case k == Readiness:
		c.facts.Ready = No
	case o == Failure:
		c.facts.Failed = k
		c.hush()
	}
	return counts, c.Facts() != was
}

// Facts are what is known now.
func (c *Container) Facts() Facts {
	f := c.facts
	if !c.probes[Readiness].exists || f.Started != Yes {
		f.Ready = f.Started
	}
	return f
}
