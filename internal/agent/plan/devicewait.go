package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// DevicesReady is the condition of a pod that has waited for its devices: False while it waits, since its transition; it outlives the agent.
// Pods that never had to wait do not have it.
const DevicesReady v1.PodConditionType = "monopod.dev/DevicesReady"

// DevicesDeadlineAnnotation is the pod's annotation that says how long it waits for its devices on this node (a duration above zero as Go writes
// them: 30s, 5m), each time that it has to; then it fails. Without it, it waits for as long as it takes.
const DevicesDeadlineAnnotation = "monopod.dev/devices-deadline"

// ReasonInvalidAnnotation is that of the event about an annotation of ours that cannot be read.
const ReasonInvalidAnnotation = "InvalidAnnotation"

// devicesDeadline is how long the pod waits for devices; 0: for ever, with an error where the annotation says something else that cannot be read.
func devicesDeadline(pod *v1.Pod) (time.Duration, error) {
	text, set := pod.Annotations[DevicesDeadlineAnnotation]
	if !set {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("the annotation %s is %q and has no effect: a duration above zero is wanted, such as 30s, 5m or 1h30m", DevicesDeadlineAnnotation, text)
	}
	return d, nil
}

// CheckDevicesDeadline says why the pod's DevicesDeadlineAnnotation has no effect; nil: it has, or there is none.
func CheckDevicesDeadline(pod *v1.Pod) error {
	_, err := devicesDeadline(pod)
	return err
}

// FailedByDeadline says why a pod is to fail that has waited for its devices as long as it wants to; nil: it goes on, and is to be looked at again
// at wake, unless that is zero.
func FailedByDeadline(in *Input) (why *Verdict, wake time.Time) {
	limit, err := devicesDeadline(in.Pod)
	if err != nil || limit == 0 {
		return nil, time.Time{}
	}
	a := assess(in)
	waits := a.awaits(in)
	if waits == "" {
		return nil, time.Time{}
	}
	since := in.Now
	if c := in.waited(); c != nil {
		since = c.LastTransitionTime.Time
	}
	if at := since.Add(limit); in.Now.Before(at) {
		return nil, at
	}
	return Rejected(ReasonDevicesNotReady, fmt.Sprintf("the pod has waited %s for its devices, as long as its annotation %s says: %s",
		in.Now.Sub(since).Round(time.Second), DevicesDeadlineAnnotation, waits)), time.Time{}
}

// waited is the condition of a pod that has begun to wait for its devices, and has not got them as far as is known; nil: it has not.
func (in *Input) waited() *v1.PodCondition {
	if c := pods.Condition(&in.Prior, DevicesReady); c != nil && c.Status == v1.ConditionFalse {
		return c
	}
	return nil
}

// withoutDevices says why the pod does not get its devices now; empty: it has them, or they were not asked for yet. While they are asked for again
// it waits for what it waited for, or for an answer that does not come.
func (in *Input) withoutDevices() string {
	if in.Facts.Has(Granted) {
		return ""
	}
	if f, failed := in.Failures[Key{Verb: GrantDevices}]; failed {
		return f.Message
	}
	if in.Asked != "" {
		return in.Asked
	}
	if c := in.waited(); c != nil {
		return c.Message
	}
	return ""
}

// lacksDevices says for which want of devices a container is not started that is due; empty: not for that. While its start is tried again, also by
// another agent than the one that told of it, it waits for what it waited for.
func (in *Input) lacksDevices(a *assessment, f *fate) string {
	if why := in.withoutDevices(); why != "" {
		return why
	}
	if !in.Facts.Has(Granted) || a.sandbox == nil || !f.role.AmongInit() && !a.initialized {
		return "" // it is not its turn; what was said before was about the grant, which comes before the sandbox
	}
	if fail, failed := in.Failures[Key{Verb: StartContainer, ContainerName: f.spec.Name}]; failed {
		if fail.Reason == ReasonDevicesNotReady {
			return fail.Message
		}
		return ""
	}
	if f.prior == nil || f.prior.State.Waiting == nil || f.prior.State.Waiting.Reason != ReasonDevicesNotReady {
		return ""
	}
	return f.prior.State.Waiting.Message
}

// awaits says for which devices the pod waits; empty: it does not.
func (a *assessment) awaits(in *Input) string {
	if a.verdict != nil || in.terminating() {
		return ""
	}
	if why := in.withoutDevices(); why != "" && a.anyDue() {
		return why
	}
	for _, f := range a.turn(in) {
		if f.state != due || in.Now.Before(f.notBefore) {
			continue
		}
		if why := in.lacksDevices(a, f); why != "" {
			return why
		}
	}
	return ""
}

// turn are the containers whose turn it is: of the init containers those up to the first that has not done its work, for which the others wait.
func (a *assessment) turn(in *Input) (turn []*fate) {
	for i := range a.init {
		f := &a.init[i]
		if f.role == pods.Sidecar || !a.initialized && f.state != succeeded {
			turn = append(turn, f)
		}
		if !a.initialized && !in.hasDoneItsWork(f) {
			return turn
		}
	}
	for i := range a.main {
		turn = append(turn, &a.main[i])
	}
	return turn
}

// devicesCondition tells whether a pod waits for devices, if it ever did. In a pod that is at its end it stays as it was.
func devicesCondition(in *Input, a *assessment, st *v1.PodStatus) {
	switch why := a.awaits(in); {
	case why != "":
		setCondition(in, st, v1.PodCondition{Type: DevicesReady, Status: v1.ConditionFalse, Reason: ReasonDevicesNotReady, Message: why})
	case in.waited() != nil && a.verdict == nil && !in.terminating():
		setCondition(in, st, v1.PodCondition{Type: DevicesReady, Status: v1.ConditionTrue})
	}
}
