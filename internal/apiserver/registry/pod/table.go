package pod

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/pods"
)

// Table is the table of pods. A pod that has ended carries the row condition Completed, which lets clients dim it.
func Table() rest.TableConvertor {
	spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
	return resource.NewTable([]resource.Column[*corev1.Pod]{
		{Name: "Name"},
		{Name: "Ready", Doc: "How many of the pod's containers are ready"},
		{Name: "Status", Doc: "The aggregate state of the containers in this pod"},
		{Name: "Restarts", Doc: "How often the pod's containers were restarted, and when the last time was"},
		{Name: "Age"},
		{Name: "IP", Doc: status["podIP"], Wide: true},
		{Name: "Node", Doc: spec["nodeName"], Wide: true},
		{Name: "Nominated Node", Doc: status["nominatedNodeName"], Wide: true},
		{Name: "Readiness Gates", Doc: spec["readinessGates"], Wide: true},
	}, podRow)
}

func podRow(pod *corev1.Pod, now time.Time) ([]any, []metav1.TableRowCondition) {
	s := summarize(pod)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts > 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, resource.Age(s.lastRestart, now))
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name,
		fmt.Sprintf("%d/%d", s.ready, s.total),
		s.status,
		restarts,
		resource.Age(pod.CreationTimestamp.Time, now),
		resource.OrNone(ip),
		resource.OrNone(pod.Spec.NodeName),
		resource.OrNone(pod.Status.NominatedNodeName),
		readinessGates(pod),
	}, completion(pod.Status.Phase)
}

func completion(phase corev1.PodPhase) []metav1.TableRowCondition {
	c := metav1.TableRowCondition{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(phase)}
	switch phase {
	case corev1.PodSucceeded:
		c.Message = "The pod has completed successfully."
	case corev1.PodFailed:
		c.Message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{c}
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return resource.None
	}
	met := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if pods.IsTrue(&pod.Status, gate.ConditionType) {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(pod.Spec.ReadinessGates))
}

// podSummary is what a pod's line says of its containers.
type podSummary struct {
	status       string
	ready, total int
	restarts     int
	lastRestart  time.Time
}

// summarize condenses a pod's status to one word, as kubectl users know it. What is closest to the user wins: a deletion
// over all else, then the state of the containers (init containers while they run, else the first container that has
// something to say), then the pod's own reason and phase.
func summarize(pod *corev1.Pod) podSummary {
	s := podSummary{status: string(pod.Status.Phase), total: len(pod.Spec.Containers)}
	if pod.Status.Reason != "" {
		s.status = pod.Status.Reason
	}
	if c := pods.Condition(&pod.Status, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonSchedulingGated {
		s.status = corev1.PodReasonSchedulingGated
	}
	sidecars := restartable(pod)
	s.total += len(sidecars)

	initializing, ofSidecars := s.addInitContainers(pod, sidecars)
	if !initializing || pods.IsTrue(&pod.Status, corev1.PodInitialized) {
		// Once the init containers are done their restarts are history: only those of sidecars still count.
		s.restarts, s.lastRestart = ofSidecars.restarts, ofSidecars.lastRestart
		s.addContainers(pod)
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == "NodeLost":
			s.status = string(corev1.PodUnknown)
		case pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			s.status = "Terminating"
		}
	}
	return s
}

// restartable names the init containers that go on beside the containers (sidecars).
func restartable(pod *corev1.Pod) map[string]bool {
	sidecars := map[string]bool{}
	for role, c := range pods.Containers(&pod.Spec) {
		if role == pods.Sidecar {
			sidecars[c.Name] = true
		}
	}
	return sidecars
}

// addInitContainers adds what the init containers say, and reports whether one of them is not done yet, and the restarts of the sidecars alone.
func (s *podSummary) addInitContainers(pod *corev1.Pod, sidecars map[string]bool) (initializing bool, ofSidecars podSummary) {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.addRestarts(c)
		if sidecars[c.Name] {
			ofSidecars.addRestarts(c)
		}
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case t != nil && t.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case t != nil:
			s.status = "Init:" + terminatedReason(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.status = "Init:" + w.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true, ofSidecars
	}
	return false, ofSidecars
}

// addContainers adds what the containers say. The first container in the spec's order that waits or has ended gives
// the status.
func (s *podSummary) addContainers(pod *corev1.Pod) {
	running, failure := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.addRestarts(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.status = w.Reason
		case t != nil:
			s.status = terminatedReason(t)
			if t.ExitCode != 0 {
				failure = s.status
			}
		case c.State.Running != nil && c.Ready:
			running = true
			s.ready++
		}
	}
	// "Completed" is the truth for the whole pod only when none of its containers is still at work, and none has failed.
	if s.status == "Completed" {
		switch {
		case running && pods.IsTrue(&pod.Status, corev1.PodReady):
			s.status = "Running"
		case failure != "":
			s.status = failure
		case running:
			s.status = "NotReady"
		}
	}
}

func (s *podSummary) addRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if last := c.LastTerminationState.Terminated; last != nil && last.FinishedAt.After(s.lastRestart) {
		s.lastRestart = last.FinishedAt.Time
	}
}

func terminatedReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return strings.TrimSpace(t.Reason)
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}
