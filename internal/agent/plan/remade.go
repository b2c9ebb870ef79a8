package plan

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod.dev/monopod/internal/pods"
)

// Passing says of a status that it tells, beyond the one before, of nothing but that containers are made anew which the agent itself has ended because their
// specification had changed: the next one, most often soon, tells that they run. One that has crashed, or was ended for another reason, is news.
func Passing(in *Input, before, now *v1.PodStatus) bool {
	if before == nil || in.terminating() {
		return false
	}
	was, is := before.DeepCopy(), now.DeepCopy()
	// Side by side, what is left of both is compared. That the pod is not ready follows from its containers.
	remade := in.leaveRemade(was.InitContainerStatuses, is.InitContainerStatuses)
	remade = in.leaveRemade(was.ContainerStatuses, is.ContainerStatuses) || remade
	for _, st := range []*v1.PodStatus{was, is} {
		for _, t := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
			if c := pods.Condition(st, t); c != nil {
				*c = v1.PodCondition{Type: t}
			}
		}
	}
	return remade && equality.Semantic.DeepEqual(was, is)
}

// leaveRemade makes the statuses of containers that are being made anew equal, and says whether there are any.
func (in *Input) leaveRemade(was, is []v1.ContainerStatus) (some bool) {
	for i := range is {
		if i < len(was) && was[i].Name == is[i].Name && in.isRemade(&is[i]) {
			was[i], some = is[i], true
		}
	}
	return some
}

// isRemade says that a container is about to run in place of one that was stopped because its specification had changed.
func (in *Input) isRemade(c *v1.ContainerStatus) bool {
	w, ended := c.State.Waiting, c.LastTerminationState.Terminated
	if w == nil || w.Message != "" || w.Reason != ReasonContainerCreating && w.Reason != ReasonPodInitializing || ended == nil {
		return false
	}
	id, now := bareID(ended.ContainerID), in.Hashes[c.Name]
	for i := range in.Observed.Containers {
		if old := &in.Observed.Containers[i]; old.ID == id {
			return in.Facts.ofContainer(Stopping, id) && old.Hash != "" && now != "" && old.Hash != now
		}
	}
	return false
}
