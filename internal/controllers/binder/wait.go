package binder

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// What a pod says and is told while it waits for devices is the same with and without a node: these are also of the node's agent (package plan
// there), which goes on with the wait of a pod that is bound.
const (
	// devicesReady is the condition of a pod that waits, or has waited, for its devices; its transition is when the wait began.
	devicesReady corev1.PodConditionType = "monopod.dev/DevicesReady"
	// devicesDeadline is the annotation that says how long a pod waits for its devices (as Go writes durations: 30s, 5m); then it fails.
	devicesDeadline         = "monopod.dev/devices-deadline"
	reasonDevicesNotReady   = "DevicesNotReady"
	reasonInvalidAnnotation = "InvalidAnnotation"
)

// waiting is the status of a pod that gets no node now, and why; forDevices: devices are among what it lacks. When they no longer are, the wait for
// them has ended: whatever else it lacks does not bring its deadline nearer.
func waiting(pod *corev1.Pod, why string, forDevices bool, now time.Time) corev1.PodStatus {
	st := *pod.Status.DeepCopy()
	pods.SetCondition(&st, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: why, ObservedGeneration: pod.Generation}, now)
	if forDevices {
		pods.SetCondition(&st, corev1.PodCondition{Type: devicesReady, Status: corev1.ConditionFalse, Reason: reasonDevicesNotReady, Message: why}, now)
		st.Reason, st.Message = reasonDevicesNotReady, why
		return st
	}
	if condition(&st, devicesReady).Status == corev1.ConditionFalse {
		pods.SetCondition(&st, corev1.PodCondition{Type: devicesReady, Status: corev1.ConditionTrue}, now)
	}
	if st.Reason == reasonDevicesNotReady {
		st.Reason, st.Message = "", ""
	}
	return st
}

func condition(st *corev1.PodStatus, of corev1.PodConditionType) (c corev1.PodCondition) {
	if has := pods.Condition(st, of); has != nil {
		c = *has
	}
	return c
}

// patience is how long a pod waits for devices; 0: for ever, with an error where its annotation says something else that cannot be read.
func patience(pod *corev1.Pod) (time.Duration, error) {
	text, set := pod.Annotations[devicesDeadline]
	if !set {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("the annotation %s is %q and has no effect: a duration above zero is wanted, such as 30s, 5m or 1h30m", devicesDeadline, text)
	}
	return d, nil
}

// failsAt is when a pod with this status fails that goes on waiting for devices; zero: never.
func failsAt(pod *corev1.Pod, st *corev1.PodStatus) time.Time {
	limit, err := patience(pod)
	if c := condition(st, devicesReady); err == nil && limit > 0 && c.Status == corev1.ConditionFalse {
		return c.LastTransitionTime.Add(limit)
	}
	return time.Time{}
}

// failed is the status of a pod that has waited for as long as it wants to.
func failed(st corev1.PodStatus, why string, now time.Time) corev1.PodStatus {
	since := condition(&st, devicesReady).LastTransitionTime
	st.Phase, st.Reason = corev1.PodFailed, reasonDevicesNotReady
	st.Message = fmt.Sprintf("the pod has waited %s for its devices, as long as its annotation %s says: %s", now.Sub(since.Time).Round(time.Second), devicesDeadline, why)
	return st
}
