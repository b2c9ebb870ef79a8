package pods

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the conditions ContainersReady and Ready, a kubelet's.
const (
	ReasonContainersNotReady     = "ContainersNotReady"
	ReasonReadinessGatesNotReady = "ReadinessGatesNotReady"
	ReasonPodCompleted           = "PodCompleted"
	ReasonPodFailed              = "PodFailed"
)

// Condition is a pod's condition of a type, in its place; nil: it has none.
func Condition(st *v1.PodStatus, of v1.PodConditionType) *v1.PodCondition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == of {
			return &st.Conditions[i]
		}
	}
	return nil
}

// IsTrue says that a pod has a condition of a type, and that it is True.
func IsTrue(st *v1.PodStatus, of v1.PodConditionType) bool {
	c := Condition(st, of)
	return c != nil && c.Status == v1.ConditionTrue
}

// SetCondition puts c in the place of the condition of its type. Its last transition is now, or stays when it was as long as the status does; when it
// was probed last is kept unless c says.
func SetCondition(st *v1.PodStatus, c v1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	old := Condition(st, c.Type)
	if old == nil {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	if c.LastProbeTime.IsZero() {
		c.LastProbeTime = old.LastProbeTime
	}
	*old = c
}

// Readiness is what the conditions ContainersReady and Ready of a pod are, by the phase, the statuses of the containers and the other conditions in st:
// its containers are ready when all of them are that run for the time of the pod, and it is when besides each of its readiness gates is open.
func Readiness(spec *v1.PodSpec, st *v1.PodStatus) (containers, ready v1.PodCondition) {
	containers = containersReady(spec, st)
	ready = containers
	ready.Type = v1.PodReady
	if closed := closedGates(spec, st); ready.Status == v1.ConditionTrue && len(closed) > 0 {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, ReasonReadinessGatesNotReady, strings.Join(closed, ", ")
	}
	return containers, ready
}

func containersReady(spec *v1.PodSpec, st *v1.PodStatus) v1.PodCondition {
	not := func(reason, message string) v1.PodCondition {
		return v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: reason, Message: message}
	}
	var unknown, unready []string
	for role, c := range Containers(spec) {
		if !role.Main() {
			continue
		}
		switch s := containerStatus(st, role, c.Name); {
		case s == nil:
			unknown = append(unknown, c.Name)
		case !s.Ready:
			unready = append(unready, c.Name)
		}
	}
	var messages []string
	if len(unknown) > 0 {
		messages = append(messages, fmt.Sprintf("containers with unknown status: %s", unknown))
	}
	if len(unready) > 0 {
		messages = append(messages, fmt.Sprintf("containers with unready status: %s", unready))
	}
	switch {
	case st.Phase == v1.PodSucceeded && len(unknown) == 0:
		return not(ReasonPodCompleted, "")
	case st.Phase == v1.PodFailed:
		return not(ReasonPodFailed, "")
	case len(messages) > 0:
		return not(ReasonContainersNotReady, strings.Join(messages, ", "))
	}
	return v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionTrue}
}

func containerStatus(st *v1.PodStatus, role Role, name string) *v1.ContainerStatus {
	list := st.ContainerStatuses
	if role.AmongInit() {
		list = st.InitContainerStatuses
	}
	i := slices.IndexFunc(list, func(s v1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// closedGates tells of each readiness gate that is not open why it is not.
func closedGates(spec *v1.PodSpec, st *v1.PodStatus) (closed []string) {
	for _, gate := range spec.ReadinessGates {
		switch c := Condition(st, gate.ConditionType); {
		case c == nil:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, c.Status))
		}
	}
	return closed
}

// UntilAvailable is after which time a pod that is Ready has been so for so many seconds (minReadySeconds of what made it); 0: it has, and is available.
func UntilAvailable(st *v1.PodStatus, minReadySeconds int32, now time.Time) time.Duration {
	ready := Condition(st, v1.PodReady)
	if minReadySeconds == 0 || ready == nil {
		return 0
	}
	return max(0, ready.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second).Sub(now))
}

// Ended says of a pod that none of its containers runs again.
func Ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}
