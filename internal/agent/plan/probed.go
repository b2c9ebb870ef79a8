package plan

import (
	"time"
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
	if f.spec.Lifecycle == nil || f.spec.Lifecycle.PostStart == nil || in.Facts.of(PostStarted, f.last.ID) {
		return false
	}
	return f.prior == nil || f.prior.State.Running == nil || bareID(f.prior.ContainerID) != f.last.ID
}
