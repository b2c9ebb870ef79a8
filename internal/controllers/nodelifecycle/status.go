package nodelifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// posted are the conditions that an agent posts. NetworkUnavailable is for whoever makes the node's network.
var posted = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}

// condition is a node's of a type, in its place; nil: it has none.
func condition(st *corev1.NodeStatus, of corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == of {
			return &st.Conditions[i]
		}
	}
	return nil
}

// allUnknown says that no agent is known to be there.
func allUnknown(st *corev1.NodeStatus) bool {
	return !slices.ContainsFunc(posted, func(t corev1.NodeConditionType) bool {
		c := condition(st, t)
		return c == nil || c.Status != corev1.ConditionUnknown
	})
}

// silence makes Unknown what only the agent can know, and reports whether the node was ready.
func silence(node *corev1.Node, now metav1.Time) (wasReady bool) {
	for _, t := range posted {
		c := condition(&node.Status, t)
		switch {
		case c == nil:
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: now,
			})
		case c.Status != corev1.ConditionUnknown:
			wasReady = wasReady || t == corev1.NodeReady && c.Status == corev1.ConditionTrue
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			c.LastTransitionTime = now
		}
	}
	return wasReady
}

// byCondition are the taints of conditions with a status.
var byCondition = []struct {
	of     corev1.NodeConditionType
	status corev1.ConditionStatus
	taint  string
	// evicts: pods that run are not spared.
	evicts bool
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady, true},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable, true},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure, false},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure, false},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure, false},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable, false},
}

// taints are those that a node is to have: others' stay. It reports whether they differ from those that it has.
func taints(node *corev1.Node, now metav1.Time) (all []corev1.Taint, differ bool) {
	var wanted []corev1.Taint
	ours := map[corev1.Taint]bool{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}: true}
	for _, by := range byCondition {
		c := condition(&node.Status, by.of)
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			if effect == corev1.TaintEffectNoExecute && !by.evicts {
				continue
			}
			t := corev1.Taint{Key: by.taint, Effect: effect}
			if ours[t] = true; c != nil && c.Status == by.status {
				wanted = append(wanted, t)
			}
		}
	}
	if node.Spec.Unschedulable {
		wanted = append(wanted, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, t := range node.Spec.Taints {
		i := slices.IndexFunc(wanted, func(w corev1.Taint) bool { return w.Key == t.Key && w.Effect == t.Effect })
		switch {
		case i >= 0:
			wanted = slices.Delete(wanted, i, i+1)
		case ours[corev1.Taint{Key: t.Key, Effect: t.Effect}]:
			differ = true
			continue
		}
		all = append(all, t)
	}
	for _, t := range wanted {
		t.TimeAdded = &now
		all, differ = append(all, t), true
	}
	return all, differ
}
