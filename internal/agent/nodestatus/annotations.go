package nodestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/devices/inventory"
)

// annotationDevices lists the resources of the node that are devices of this agent, so that one that was taken away while
// the agent was not running is told from one that somebody else has written.
const annotationDevices = "monopod.dev/device-resources"

// annotationFaults says what is wrong with devices, as a JSON object of texts by resource: who binds pods tells it to those that wait (package binder).
const annotationFaults = "monopod.dev/device-faults"

// Of a resource mostOfFault bytes are told, of all about mostOfFaults: annotations of an object have a limit.
const mostOfFault, mostOfFaults = 400, 32 << 10

// faultsOf is the value of annotationFaults; empty: nothing is wrong.
func faultsOf(faults map[string]string) string {
	all, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		text := faults[name]
		if len(text) > mostOfFault {
			text = strings.ToValidUTF8(text[:mostOfFault], "") + "..."
		}
		if size += len(name) + len(text); size <= mostOfFaults {
			all[name] = text
		}
	}
	if len(all) == 0 {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "" // strings can be written
	}
	return string(text)
}

// own puts the names of the devices, and what is wrong with them, on record before they appear in the status; one that is gone stays on record until it
// has disappeared from the status.
func (r *Reporter) own(ctx context.Context, s state) error {
	for _, name := range strings.Split(r.node.Annotations[annotationDevices], ",") {
		r.seen[name] = true
	}
	annotations := map[string]any{}
	if names := r.ownedNames(s.devices, r.node.Status.Capacity); r.node.Annotations[annotationDevices] != names {
		annotations[annotationDevices] = names
	}
	switch faults := faultsOf(s.faults); {
	case r.node.Annotations[annotationFaults] == faults:
	case faults == "":
		annotations[annotationFaults] = nil
	default:
		annotations[annotationFaults] = faults
	}
	if len(annotations) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	node, err := r.cfg.Client.CoreV1().Nodes().Patch(ctx, r.cfg.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		r.node = nil
		return fmt.Errorf("annotations of devices of node %s: %w", r.cfg.NodeName, err)
	}
	r.node = node
	return nil
}

// ownedNames lists the devices and those former devices that the status still has.
func (r *Reporter) ownedNames(devices map[string]inventory.Quantity, capacity v1.ResourceList) string {
	var names []string
	for name := range devices {
		r.seen[name] = true
	}
	for name := range r.seen {
		_, now := devices[name]
		_, still := capacity[v1.ResourceName(name)]
		if name != "" && (now || still) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
