package nodestatus

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// event is something to be told of the node, in a kubelet's words.
type event struct{ kind, reason, message string }

// reasons are those of the events that tell that a condition has become true, or false.
var reasons = map[v1.NodeConditionType]map[v1.ConditionStatus]string{
	v1.NodeReady:          {v1.ConditionTrue: "NodeReady", v1.ConditionFalse: "NodeNotReady"},
	v1.NodeMemoryPressure: {v1.ConditionTrue: "NodeHasInsufficientMemory", v1.ConditionFalse: "NodeHasSufficientMemory"},
	v1.NodeDiskPressure:   {v1.ConditionTrue: "NodeHasDiskPressure", v1.ConditionFalse: "NodeHasNoDiskPressure"},
	v1.NodePIDPressure:    {v1.ConditionTrue: "NodeHasInsufficientPID", v1.ConditionFalse: "NodeHasSufficientPID"},
}

// changes are the events between two of the node's statuses. Of a node that was never ready it is not told that it is not.
func changes(node string, was, now *v1.NodeStatus) (events []event) {
	if was.NodeInfo.BootID != "" && was.NodeInfo.BootID != now.NodeInfo.BootID {
		events = append(events, event{v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", node, now.NodeInfo.BootID)})
	}
	for _, c := range now.Conditions {
		reason := reasons[c.Type][c.Status]
		i := slices.IndexFunc(was.Conditions, func(o v1.NodeCondition) bool { return o.Type == c.Type })
		if reason == "" || i >= 0 && was.Conditions[i].Status == c.Status || i < 0 && reason == "NodeNotReady" {
			continue
		}
		events = append(events, statusNow(node, reason))
	}
	return events
}

func statusNow(node, reason string) event {
	return event{v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", node, reason)}
}

// cordoned tells that the node takes pods again, or no more.
func (r *Reporter) cordoned(was, is bool) {
	reason := "NodeSchedulable"
	if is {
		reason = "NodeNotSchedulable"
	}
	if was != is {
		e := statusNow(r.cfg.NodeName, reason)
		r.tell(e.kind, e.reason, e.message)
	}
}

func (r *Reporter) tell(kind, reason, message string) {
	if r.cfg.Events != nil {
		r.cfg.Events.Event(r.cfg.Ref, kind, reason, message)
	}
}
