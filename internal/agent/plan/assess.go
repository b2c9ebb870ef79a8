package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// Reasons and codes that appear in statuses.
const (
	ReasonStatusUnknown    = "ContainerStatusUnknown"
	ReasonDevicesNotReady  = "DevicesNotReady"
	ReasonDeadlineExceeded = "DeadlineExceeded"
	ReasonUnsupported      = "UnsupportedField"
	ReasonNameTooLong      = "NameTooLong"
	ReasonPostStartFailed  = "PostStartHookError"
	// UnknownExitCode stands, with ReasonStatusUnknown, for a code that nobody knows.
	UnknownExitCode = 255
	// NotLocatedExitCode is that of a container which had not run when its pod was deleted.
	NotLocatedExitCode = 137
)

// fateState is where a container is on its way.
//
//	absent --> due --> up --> succeeded | failed
//	            ^       |
//	            +-------+ it exited and its policy restarts it
type fateState int

const (
	// due: to be started, at notBefore or later.
	due fateState = iota
	up
	succeeded
	failed
)

// fate is what has become of one container of the specification.
type fate struct {
	spec  *v1.Container
	role  pods.Role
	prior *v1.ContainerStatus
	// last is its newest container, dead the newest dead one before that; nil: none.
	last, dead *Container
	state      fateState
	// old: the container is of before all were started again, or of an earlier sandbox where that makes a difference; it is run again whatever its end was.
	old bool
	// attempt and step are those of the next container, notBefore is when it may be started.
	attempt   int32
	step      int
	notBefore time.Time
}

// assessment is what both the actions and the status are derived from.
type assessment struct {
	sandbox *Sandbox
	// init are the init containers and the sidecars, main the app containers, ephemeral those that look at the pod.
	init, main, ephemeral []fate
	initialized           bool
	// verdict is how the pod ends; nil: it goes on.
	verdict *Verdict
	// startTime is when the agent first saw the pod, deadline is by when it has to have ended (zero: no deadline).
	startTime, deadline time.Time
	// renewed is when a container ended last whose end starts all containers again (KEP-5532); zero: none has.
	renewed time.Time
}

func (a *assessment) deadlineSet() bool { return !a.deadline.IsZero() }

func assess(in *Input) assessment {
	a := assessment{sandbox: in.Observed.current(), startTime: in.Now}
	if in.Prior.StartTime != nil {
		a.startTime = in.Prior.StartTime.Time
	}
	if s := in.Pod.Spec.ActiveDeadlineSeconds; s != nil {
		a.deadline = a.startTime.Add(pods.Seconds(*s))
	}
	a.renewed = in.renewed()
	for role, c := range pods.Containers(&in.Pod.Spec) {
		switch role {
		case pods.Init, pods.Sidecar:
			a.init = append(a.init, a.judgeFate(in, newFate(in, role, c, in.Prior.InitContainerStatuses)))
		case pods.App:
			a.main = append(a.main, a.judgeFate(in, newFate(in, role, c, in.Prior.ContainerStatuses)))
		case pods.Ephemeral:
			a.ephemeral = append(a.ephemeral, a.judgeFate(in, newFate(in, role, c, in.Prior.EphemeralContainerStatuses)))
		}
	}
	a.initialized = a.isInitialized(in)
	a.verdict = a.judge(in)
	return a
}

// isInitialized says that the init containers of the sandbox in use have done their work, and that the sidecars among them are up or were. Their containers may
// have been removed since, but the others are only started after them.
func (a *assessment) isInitialized(in *Input) bool {
	if a.sandbox != nil {
		for i := range a.main {
			if c := a.main[i].last; c != nil && !c.lost && c.SandboxID == a.sandbox.ID && !a.outdated(c) {
				return true
			}
		}
	}
	for i := range a.init {
		if !in.hasDoneItsWork(&a.init[i]) {
			return false
		}
	}
	return true
}

// hasDoneItsWork says of a container among the init containers that the next one may be started.
func (in *Input) hasDoneItsWork(f *fate) bool {
	if f.role == pods.Sidecar {
		started, _ := in.readiness(f)
		return started
	}
	return f.state == succeeded
}

// outdated says that a container is of before all were started again.
func (a *assessment) outdated(c *Container) bool {
	return !a.renewed.IsZero() && !c.CreatedAt.After(a.renewed)
}

func newFate(in *Input, role pods.Role, c *v1.Container, priors []v1.ContainerStatus) fate {
	f := fate{spec: c, role: role}
	for i := range priors {
		if priors[i].Name == c.Name {
			f.prior = &priors[i]
		}
	}
	all := in.Observed.byName(c.Name)
	if len(all) == 0 {
		f.last = fromPrior(f.prior)
		return f
	}
	f.last = all[0]
	for _, c := range all[1:] {
		if c.State == Exited {
			f.dead = c
			break
		}
	}
	return f
}

// judgeFate derives the state of a container from its newest one and what is done when one of its role ends.
func (a *assessment) judgeFate(in *Input, f fate) fate {
	l := f.last
	switch {
	case l == nil:
		f.state = due
		return f
	case l.State == Created:
		f.state, f.attempt, f.step = due, l.Attempt, l.Step
		return f
	case l.alive():
		f.state, f.old = up, a.outdated(l)
		return f
	}
	policy := restartPolicy(&in.Pod.Spec, f.role, f.spec, l.ExitCode)
	switch {
	case a.outdated(l):
		// Only who asked for the new start waits for having ended again and again.
		f.old, f.state, f.attempt, f.step = true, due, l.Attempt+1, l.Step
		if asksForAll(f.spec, l.ExitCode) {
			f.step, f.notBefore = restart(l)
		}
	case f.role.AmongInit() && a.ofEarlierSandbox(l) && !(policy == v1.RestartPolicyNever && l.ExitCode != 0):
		// What it set up is gone.
		f.old, f.state, f.attempt = true, due, l.Attempt+1
	case in.replaced(&f):
		f.state, f.attempt, f.step = due, l.Attempt+1, 1
	case policy == v1.RestartPolicyAlways, policy == v1.RestartPolicyOnFailure && l.ExitCode != 0:
		f.state, f.attempt = due, l.Attempt+1
		f.step, f.notBefore = restart(l)
		if in.changed(&f) {
			f.step, f.notBefore = 1, time.Time{}
		}
	case l.ExitCode == 0:
		f.state = succeeded
	default:
		f.state = failed
	}
	return f
}

func (a *assessment) ofEarlierSandbox(c *Container) bool {
	return a.sandbox != nil && c.SandboxID != a.sandbox.ID
}

// changed says that a container was made from another specification than it has now: what it crashed of may be mended.
func (in *Input) changed(f *fate) bool {
	now, was := in.Hashes[f.spec.Name], f.last.Hash
	return now != "" && was != "" && now != was
}

// replaced says that a container has ended because it was stopped for its specification had changed: it is started again whatever the policy says.
func (in *Input) replaced(f *fate) bool {
	return in.changed(f) && in.Facts.ofContainer(Stopping, f.last.ID)
}

// Begun says that an agent has taken the pod before: it is not turned away for what this one thinks of it.
func (in *Input) Begun() bool {
	return in.Prior.StartTime != nil || len(in.Observed.Sandboxes)+len(in.Observed.Containers) > 0
}
