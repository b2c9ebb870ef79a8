package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
)

// Answer is what is known of something.
type Answer int

// The answers.
const (
	NotKnown Answer = iota
	Yes
	No
)

// Probed is what the probes of a container have found.
type Probed struct {
	// Started is the startup probe's answer, Ready that of the readiness probe.
	Started, Ready Answer
	// Failed: the startup or the liveness probe has failed, so the container is stopped; Why is what an event says.
	Failed bool
	Why    string
	// Grace is how long it has to end; nil: as long as the pod says.
	Grace *time.Duration
}

// readiness says whether a container has started up and whether it is ready. What its probes have not answered yet, after a start of the agent, is what the
// status told of the same container.
func (in *Input) readiness(f *fate) (started, ready bool) {
	l := f.last
	if l == nil || l.State != Running || in.postStartDue(f) {
		return false, false
	}
	was := f.prior != nil && f.prior.State.Running != nil && bareID(f.prior.ContainerID) == l.ID
	probed := in.Probed[l.ID]
	started = f.spec.StartupProbe == nil || saidBy(probed.Started, was && f.prior.Started != nil && *f.prior.Started)
	ready = started && (f.spec.ReadinessProbe == nil || saidBy(probed.Ready, was && f.prior.Ready))
	return started, ready
}

func saidBy(a Answer, before bool) bool { return a == Yes || a == NotKnown && before }

// postStartDue says that the container's postStart hook has not run to its end. A status that tells of it as running was written after that.
func (in *Input) postStartDue(f *fate) bool {
	if f.spec.Lifecycle == nil || f.spec.Lifecycle.PostStart == nil || in.Facts.ofContainer(PostStarted, f.last.ID) {
		return false
	}
	return f.prior == nil || f.prior.State.Running == nil || bareID(f.prior.ContainerID) != f.last.ID
}

// Probee is a container that is to be probed.
type Probee struct {
	Spec *v1.Container
	// ID is the container's, IP its pod's address.
	ID        ids.ContainerID
	IP        string
	StartedAt time.Time
	// Started: the status told that it has started up.
	Started bool
}

// ToProbe are the containers that are to be probed: those with probes that run, after their postStart hook.
func ToProbe(in *Input) (all []Probee) {
	if !anyProbe(&in.Pod.Spec) {
		return nil
	}
	a := assess(in)
	for _, list := range [][]fate{a.init, a.main} {
		for i := range list {
			f := &list[i]
			if f.last == nil || f.last.State != Running || f.last.lost || !hasProbe(f.spec) || in.postStartDue(f) {
				continue
			}
			p := Probee{Spec: f.spec, ID: f.last.ID, StartedAt: f.last.StartedAt}
			if s := in.Observed.sandbox(f.last.SandboxID); s != nil && len(s.IPs) > 0 {
				p.IP = s.IPs[0]
			}
			if in.Pod.Spec.HostNetwork && len(in.HostIPs) > 0 {
				p.IP = in.HostIPs[0]
			}
			p.Started = f.prior != nil && f.prior.Started != nil && *f.prior.Started && bareID(f.prior.ContainerID) == p.ID
			all = append(all, p)
		}
	}
	return all
}

func anyProbe(spec *v1.PodSpec) bool {
	for _, c := range pods.Containers(spec) {
		if hasProbe(c) {
			return true
		}
	}
	return false
}

func hasProbe(c *v1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}
