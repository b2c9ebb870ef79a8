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
		init.Message = "containers with incomplete status: " + incomplete(in, a)
	}

	containers, ready := pods.Readiness(&in.Pod.Spec, st)
	scheduled := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue}
	for _, c := range []v1.PodCondition{sandbox, init, ready, containers, scheduled} {
		setCondition(in, st, c)
	}
	restartingCondition(in, a, st)
	devicesCondition(in, a, st)
}

// incomplete names the init containers that have not done their work.
func incomplete(in *Input, a *assessment) string {
	var names []string
	for i := range a.init {
		if !in.hasDoneItsWork(&a.init[i]) {
			names = append(names, a.init[i].spec.Name)
		}
	}
	return "[" + strings.Join(names, " ") + "]"
}

func setCondition(in *Input, st *v1.PodStatus, c v1.PodCondition) {
	c.ObservedGeneration = in.Pod.Generation
	pods.SetCondition(st, c, in.Now)
}

// restartingCondition tells of a pod whose containers are all started again by a rule (KEP-5532); others do not have it.
func restartingCondition(in *Input, a *assessment, st *v1.PodStatus) {
	if a.renewed.IsZero() {
		return
	}
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	for _, list := range [][]fate{a.init, a.main} {
		for i := range list {
			if list[i].old && a.verdict == nil {
				c.Status = v1.ConditionTrue
			}
		}
	}
	setCondition(in, st, c)
}
