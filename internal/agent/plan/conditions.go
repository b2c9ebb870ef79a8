package plan

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
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

	containers, ready := pods.Readiness(&in.Pod.Spec, st)
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

func setCondition(in *Input, st *v1.PodStatus, c v1.PodCondition) {
	c.ObservedGeneration = in.Pod.Generation
	pods.SetCondition(st, c, in.Now)
}
