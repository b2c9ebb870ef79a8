package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Verdict is how a pod ends that is not to go on: its phase, what its status says of it, and how long its containers have. Whoever ends a pod says so by
// a value of this type: that its containers have ended, its deadline, admission, a device that failed, an eviction.
type Verdict struct {
	// Phase is the pod's when its containers have ended.
	Phase v1.PodPhase
	// Reason and Message are what its status says; empty: nothing but the phase.
	Reason, Message string
	// Grace is how long its containers have to end; nil: as long as the pod says.
	Grace *time.Duration
	// Since is when the grace begins; zero: when it is decided.
	Since time.Time
	// Condition is one that the pod gets by it, such as DisruptionTarget; nil: none.
	Condition *v1.PodCondition
	// told: the status says it already.
	told bool
}

// ShortestGrace is what containers have that are to end at once, of a pod that is evicted or deleted by force.
const ShortestGrace = 2 * time.Second

// GraceOf is what containers have for a grace period: that time, and ShortestGrace where it is none. A kubelet makes two seconds of one as well; who asks
// for one second has it here.
func GraceOf(asked time.Duration) time.Duration {
	if asked <= 0 {
		return ShortestGrace
	}
	return asked
}

// Terminated is the verdict on a pod that the node ends for the sake of others, or for its limits: a disruption that its owner may tell from a failure of its own.
func Terminated(reason, message string, grace time.Duration) *Verdict {
	return &Verdict{
		Phase: v1.PodFailed, Reason: reason, Message: message, Grace: &grace,
		Condition: &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message},
	}
}

// Rejected is the verdict on a pod that the node does not take.
func Rejected(reason, message string) *Verdict {
	return &Verdict{Phase: v1.PodFailed, Reason: reason, Message: message}
}

// stopBy is by when the containers are to have ended.
func (v *Verdict) stopBy(in *Input) time.Time {
	since, g := v.Since, OwnGrace(in.Pod)
	if since.IsZero() {
		since = in.Now
	}
	if v.Grace != nil {
		g = *v.Grace
	}
	return since.Add(g)
}

// judge says how the pod ends; nil: it goes on.
func (a *assessment) judge(in *Input) *Verdict {
	if p := in.Prior.Phase; p == v1.PodSucceeded || p == v1.PodFailed {
		return &Verdict{Phase: p, told: true}
	}
	if in.Verdict != nil {
		return in.Verdict
	}
	if a.deadlineSet() && !in.Now.Before(a.deadline) {
		return &Verdict{
			Phase: v1.PodFailed, Reason: ReasonDeadlineExceeded, Message: "Pod was active on the node longer than the specified deadline", Since: a.deadline,
		}
	}
	return a.judgeContainers()
}

// judgeContainers says how the pod ends by its containers.
func (a *assessment) judgeContainers() *Verdict {
	if !a.initialized {
		for i := range a.init {
			if a.init[i].state == failed {
				return &Verdict{Phase: v1.PodFailed}
			}
		}
	}
	phase := v1.PodSucceeded
	for i := range a.main {
		switch a.main[i].state {
		case failed:
			phase = v1.PodFailed
		case succeeded:
		default:
			return nil
		}
	}
	return &Verdict{Phase: phase}
}
