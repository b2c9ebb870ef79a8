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
	ReasonNodePorts        = "NodePorts"
	// UnknownExitCode stands, with ReasonStatusUnknown, for a code that nobody knows.
	UnknownExitCode = 255
)

// NodePortsMessage tells why a pod is not admitted.
const NodePortsMessage = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"

// verdict says whether, and why, a pod is at its end.
type verdict string

const (
	goesOn           verdict = ""
	allSucceeded     verdict = "all containers have succeeded"
	someFailed       verdict = "a container has failed and is not restarted"
	deadlineExceeded verdict = "the pod was active longer than its deadline"
	unsupported      verdict = "the pod asks for what this node does not honour"
	rejected         verdict = "the pod is never to have what it asks for"
	portsTaken       verdict = "another pod has a port of the host that the pod asks for"
	alreadyFinal     verdict = "the pod has finished"
)

func (v verdict) final() bool { return v != goesOn }

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
	// attempt and step are those of the next container, notBefore is when it may be started.
	attempt   int32
	step      int
	notBefore time.Time
}

// assessment is what both the actions and the status are derived from.
type assessment struct {
	sandbox     *Sandbox
	init, main  []fate
	initialized bool
	verdict     verdict
	// startTime is when the agent first saw the pod, deadline is by when it has to have ended (zero: no deadline).
	startTime, deadline time.Time
}

func (a *assessment) deadlineSet() bool { return !a.deadline.IsZero() }

func assess(in *Input) assessment {
	a := assessment{sandbox: in.Observed.current(), startTime: in.Now}
	if in.Prior.StartTime != nil {
		a.startTime = in.Prior.StartTime.Time
	}
	if s := in.Pod.Spec.ActiveDeadlineSeconds; s != nil {
		a.deadline = a.startTime.Add(time.Duration(*s) * time.Second)
	}
	for role, c := range pods.Containers(&in.Pod.Spec) {
		switch role {
		case pods.Init, pods.Sidecar:
			a.init = append(a.init, initFate(in, a.sandbox, role, c))
		case pods.App:
			a.main = append(a.main, mainFate(in, role, c))
		case pods.Ephemeral: // a pod that has one is refused
		}
	}
	a.initialized = initialized(&a)
	a.verdict = a.judge(in)
	return a
}

// initialized says that the init containers of the sandbox in use have done their work. Their containers may have been
// removed since, but the others are only started after them.
func initialized(a *assessment) bool {
	if a.sandbox != nil {
		for i := range a.main {
			if c := a.main[i].last; c != nil && !c.lost && c.SandboxID == a.sandbox.ID {
				return true
			}
		}
	}
	for i := range a.init {
		if a.init[i].state != succeeded {
			return false
		}
	}
	return true
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

// mainFate judges a container that runs beside the others.
func mainFate(in *Input, role pods.Role, c *v1.Container) fate {
	f := newFate(in, role, c, in.Prior.ContainerStatuses)
	f.judge(in.Pod.Spec.RestartPolicy)
	return f
}

// initFate judges an init container. Those of earlier sandboxes count as not run: what they set up is gone.
func initFate(in *Input, sandbox *Sandbox, role pods.Role, c *v1.Container) fate {
	f := newFate(in, role, c, in.Prior.InitContainerStatuses)
	policy := in.Pod.Spec.RestartPolicy
	if policy == v1.RestartPolicyAlways {
		policy = v1.RestartPolicyOnFailure
	}
	if l := f.last; l != nil && l.State == Exited && sandbox != nil && l.SandboxID != sandbox.ID && !(policy == v1.RestartPolicyNever && l.ExitCode != 0) {
		f.state, f.attempt = due, l.Attempt+1
		return f
	}
	f.judge(policy)
	return f
}

// judge derives the container's state from its newest container and the policy.
func (f *fate) judge(policy v1.RestartPolicy) {
	l := f.last
	switch {
	case l == nil:
		f.state = due
	case l.State == Created:
		f.state, f.attempt, f.step = due, l.Attempt, l.Step
	case l.alive():
		f.state = up
	case policy == v1.RestartPolicyAlways, policy == v1.RestartPolicyOnFailure && l.ExitCode != 0:
		f.state, f.attempt = due, l.Attempt+1
		f.step, f.notBefore = restart(l)
	case l.ExitCode == 0:
		f.state = succeeded
	default:
		f.state = failed
	}
}

// begun says that an agent has taken the pod before, one that did not mind its fields, or that it got an ephemeral container since: it is not ended
// for that.
func (in *Input) begun() bool {
	return in.Prior.StartTime != nil || len(in.Observed.Sandboxes)+len(in.Observed.Containers) > 0
}

// judge says whether the pod as a whole is at its end.
func (a *assessment) judge(in *Input) verdict {
	if p := in.Prior.Phase; p == v1.PodSucceeded || p == v1.PodFailed {
		return alreadyFinal
	}
	if len(in.Unsupported) > 0 && !in.begun() {
		return unsupported
	}
	if in.PortsTaken {
		return portsTaken
	}
	if in.Rejection != nil {
		return rejected
	}
	if a.deadlineSet() && !in.Now.Before(a.deadline) {
		return deadlineExceeded
	}
	if !a.initialized {
		for i := range a.init {
			if a.init[i].state == failed {
				return someFailed
			}
		}
	}
	anyFailed := false
	for i := range a.main {
		switch a.main[i].state {
		case failed:
			anyFailed = true
		case succeeded:
		default:
			return goesOn
		}
	}
	if anyFailed {
		return someFailed
	}
	return allSucceeded
}
