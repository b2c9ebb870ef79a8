package binder

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/pods/allocated"
)

// shortages says, a sentence a resource, why there are too few of the devices that a pod asks for, where that is more than that others have them.
func shortages(pod *corev1.Pod, places []place) string {
	var text strings.Builder
	wanted := allocated.Of(pod).Requests()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if want := wanted[name]; isDevice(name) && !want.IsZero() {
			text.WriteString(shortage(name, want, places))
		}
	}
	return text.String()
}

func shortage(name corev1.ResourceName, want resource.Quantity, places []place) string {
	var most *corev1.Node // the one that has most of it, granted or not
	for _, at := range places {
		if want.Cmp(at.node.Status.Allocatable[name]) <= 0 {
			if kept := waitsFor(name, at.pods); kept != nil {
				return fmt.Sprintf(" %s is kept for pod %s/%s, which came first.", name, kept.Namespace, kept.Name)
			}
			return ""
		}
		if has, known := total(at.node, name); known {
			if most == nil {
				most = at.node
			} else if other, _ := total(most, name); has.Cmp(other) > 0 {
				most = at.node
			}
		}
	}
	if most == nil {
		return fmt.Sprintf(" No node offers %s yet%s; the pod starts when one does.", name, relatives(name, places))
	}
	has, _ := total(most, name)
	why := faults(most, name)
	if has.IsZero() && why != "" {
		return fmt.Sprintf(" Node %s has no %s now (%s); the pod starts when one has enough.", most.Name, name, why)
	}
	if want.Cmp(has) > 0 {
		if why != "" {
			why = "; node " + most.Name + " says: " + why
		}
		return fmt.Sprintf(" No node has %s of %s now, so younger pods may start first%s.", want.String(), name, why)
	}
	if why != "" {
		why = " (" + why + ")"
	}
	ill := has.DeepCopy()
	ill.Sub(most.Status.Allocatable[name])
	return fmt.Sprintf(" Node %s has %s of %s, of which %s cannot be granted now%s; the pod starts when enough can.", most.Name, has.String(), name, ill.String(), why)
}

// deviceFaults is the annotation of a Node in which its agent says, as a JSON object of texts by resource, what is wrong with its devices (package nodestatus).
const deviceFaults = "monopod.dev/device-faults"

// mostOfFaults is how many bytes of that are told: it stands in the status of each pod that waits.
const mostOfFaults = 400

// faults are what a node says is wrong with its devices of a resource; empty: nothing.
func faults(node *corev1.Node, name corev1.ResourceName) string {
	var all map[corev1.ResourceName]string
	if text := node.Annotations[deviceFaults]; text == "" || json.Unmarshal([]byte(text), &all) != nil {
		return "" // whoever wrote that is no agent of ours
	}
	why := all[name]
	if len(why) <= mostOfFaults {
		return why
	}
	return strings.ToValidUTF8(why[:mostOfFaults], "") + "..."
}

// mostRelatives is how many names are told beside one that nobody knows.
const mostRelatives = 5

// relatives tells which devices of a domain there are, where nobody knows one of the name: it may be a slip of the pen.
func relatives(name corev1.ResourceName, places []place) string {
	domain, _, _ := strings.Cut(string(name), "/")
	known := map[string]bool{}
	for _, at := range places {
		for other := range at.node.Status.Allocatable {
			if strings.HasPrefix(string(other), domain+"/") {
				known[string(other)] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(known))
	switch more := len(names) - mostRelatives; {
	case len(names) == 0:
		return ""
	case more > 0:
		return fmt.Sprintf(" (there are %s and %d more)", strings.Join(names[:mostRelatives], ", "), more)
	}
	return fmt.Sprintf(" (there is %s)", strings.Join(names, ", "))
}

// total is how many devices a node has, healthy or not; false: it does not know the resource.
func total(node *corev1.Node, name corev1.ResourceName) (resource.Quantity, bool) {
	has, known := node.Status.Capacity[name]
	if can, is := node.Status.Allocatable[name]; is && (!known || can.Cmp(has) > 0) {
		return can, true
	}
	return has, known
}

// waits says of a pod that has a node that it waits there for devices, as its agent has seen, which gives it a start time.
func waits(pod *corev1.Pod) bool {
	return pod.Status.StartTime != nil && condition(&pod.Status, devicesReady).Status == corev1.ConditionFalse
}

// waitsFor is a pod that has a node, and waits there for devices of a resource: what is free of them is kept for it. nil: there is none.
func waitsFor(name corev1.ResourceName, bound []*corev1.Pod) *corev1.Pod {
	for _, p := range bound {
		if waits(p) && devices(p)[name] {
			return p
		}
	}
	return nil
}
