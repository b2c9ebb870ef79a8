package plan

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions sets the conditions that the node's agent owns; others stay as they are. PodScheduled is told by whoever binds a pod, and by the
// agent too: a pod that was created with its node passed no binder.
func conditions(in *Input, a *assessment, st *v1.PodStatus) {
	sandbox := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse}
	if a.sandbox != nil && (len(a.sandbox.IPs) > 0 || in.Pod.Spec.HostNetwork) {
		sandbox.Status = v1.ConditionTrue
	}

	init := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if !a.initialized && st.Phase != v1.PodSucceeded {
		init.Status, init.Reason = v1.ConditionFalse, "ContainersNotInitialized"
		init.Message = "containers with incomplete status: " + names(st.InitContainerStatuses, func(c v1.ContainerStatus) bool { return !c.Ready })
	}

	containers := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionTrue}
	switch unready := names(st.ContainerStatuses, func(c v1.ContainerStatus) bool { return !c.Ready }); {
	case st.Phase == v1.PodSucceeded:
		containers.Status, containers.Reason = v1.ConditionFalse, "PodCompleted"
	case st.Phase == v1.PodFailed:
		containers.Status, containers.Reason = v1.ConditionFalse, "PodFailed"
	case unready != "[]":
		containers.Status, containers.Reason = v1.ConditionFalse, ReasonContainersNotReady
		containers.Message = "containers with unready status: " + unready
	}

	ready := containers
	ready.Type = v1.PodReady
	if missing := missingGates(in.Pod, st); ready.Status == v1.ConditionTrue && missing != "" {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "ReadinessGatesNotReady", missing
	}
	scheduled := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue}
	for _, c := range []v1.PodCondition{sandbox, init, ready, containers, scheduled} {
		setCondition(in, st, c)
	}
	devicesCondition(in, a, st)
}

func names(all []v1.ContainerStatus, match func(v1.ContainerStatus) bool) string {
	var found []string
	for _, c := range all {
		if match(c) {
			found = append(found, c.Name)
		}
	}
	return "[" + strings.Join(found, " ") + "]"
}

func missingGates(pod *v1.Pod, st *v1.PodStatus) string {
	var missing []string
	for _, g := range pod.Spec.ReadinessGates {
		ok := slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == v1.ConditionTrue
		})
		if !ok {
			missing = append(missing, `the status of pod readiness gate "`+string(g.ConditionType)+`" is not "True"`)
		}
	}
	return strings.Join(missing, ", ")
}

func setCondition(in *Input, st *v1.PodStatus, c v1.PodCondition) {
	c.ObservedGeneration = in.Pod.Generation
	c.LastTransitionTime = metav1.NewTime(in.Now)
	i := slices.IndexFunc(st.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if st.Conditions[i].Status == c.Status {
		c.LastTransitionTime = st.Conditions[i].LastTransitionTime
	}
	c.LastProbeTime = st.Conditions[i].LastProbeTime
	st.Conditions[i] = c
}
