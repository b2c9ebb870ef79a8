package shutdown

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/pods"
)

// What a pod's status says, in a kubelet's words.
const (
	// ReasonTerminated is of a pod that was ended, ReasonRejected of one that came while the node shut down.
	ReasonTerminated = "Terminated"
	ReasonRejected   = "NodeShutdown"

	saidTerminated = "Pod was terminated in response to imminent node shutdown."
	saidRejected   = plan.SaidRejected + "Pod was rejected as the node is shutting down."
)

// Judge says how a pod ends because the node shuts down; nil: it goes on, because the node does, or its turn has not come. begun: the node had taken it before.
func (m *Manager) Judge(pod *v1.Pod, begun bool) *plan.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.course == nil {
		return nil
	}
	if !begun {
		return plan.Rejected(ReasonRejected, saidRejected)
	}
	since, grace, ends := m.course.Ends(Priority(pod), own(pod))
	if !ends {
		return nil
	}
	v := plan.Terminated(ReasonTerminated, saidTerminated, grace)
	v.Since = since
	return v
}

// StopBy is by when a pod that is deleted shall have ended, which was to have ended by then: the shutdown leaves it no more time than to others.
func (m *Manager) StopBy(pod *v1.Pod, by time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.course == nil || by.IsZero() {
		return by
	}
	if since, grace, ends := m.course.Ends(Priority(pod), own(pod)); ends && since.Add(grace).Before(by) {
		return since.Add(grace)
	}
	return by
}

// Priority is a pod's.
func Priority(pod *v1.Pod) int32 {
	if p := pod.Spec.Priority; p != nil {
		return *p
	}
	return 0
}

// own is how long the pod itself wants to have.
func own(pod *v1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return pods.Seconds(*s)
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}
