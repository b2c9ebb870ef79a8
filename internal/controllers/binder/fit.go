package binder

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// place is a node with the pods that have their place on it already; pods that have ended are not among them.
type place struct {
	node *corev1.Node
	pods []*corev1.Pod
	// holds is what these pods hold together; nil: that has still to be reckoned.
	holds *holdings
}

func (at *place) holdings() *holdings {
	if at.holds == nil {
		at.holds = holdingsOf(at.pods)
	}
	return at.holds
}

// resourcesSuffice tells what of the resources that a pod wants a node does not have for it.
func resourcesSuffice(wanted corev1.ResourceList, at place) (lacks []lack) {
	allocatable, holds := at.node.Status.Allocatable, at.holdings()
	if places := allocatable[corev1.ResourcePods]; int64(len(at.pods)+1) > places.Value() {
		lacks = append(lacks, lack{why: "Too many pods"})
	}
	inVain := holds.inVain(wanted, allocatable)
	for _, name := range slices.SortedFunc(maps.Keys(wanted), computeFirst) {
		want := wanted[name]
		if want.IsZero() {
			continue
		}
		// A resource that the node does not know is one of which it has nothing.
		sum := holds.used[name].DeepCopy()
		sum.Sub(inVain[name])
		sum.Add(want)
		if sum.Cmp(allocatable[name]) > 0 {
			lacks = append(lacks, lack{why: "Insufficient " + string(name), devices: isDevice(name)})
		}
	}
	return lacks
}

// inVain are the devices, of kinds that somebody wants, that pods of a node request in vain.
func (h *holdings) inVain(wanted, allocatable corev1.ResourceList) (sums corev1.ResourceList) {
	if len(h.devices) == 0 {
		return nil
	}
	var kinds []corev1.ResourceName
	for name := range wanted {
		if isDevice(name) {
			kinds = append(kinds, name)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	for of := range h.devices {
		if !waitsInVain(of.Pod, of.requests, allocatable) {
			continue
		}
		for _, name := range kinds {
			if quantity, has := of.requests[name]; has {
				sum := sums[name]
				sum.Add(quantity)
				if sums == nil {
					sums = corev1.ResourceList{}
				}
				sums[name] = sum
			}
		}
	}
	return sums
}

// waitsInVain says of a pod on a node that it has no devices and stands in nobody's way, because it asks for more than there are. Only pods that name
// their node by themselves get there with that, and those whose devices have fallen ill since.
func waitsInVain(pod *corev1.Pod, wanted, allocatable corev1.ResourceList) bool {
	if pod.Status.Phase == corev1.PodRunning {
		return false
	}
	for name, want := range wanted {
		if isDevice(name) && want.Cmp(allocatable[name]) > 0 {
			return true
		}
	}
	return false
}

// isDevice says that a resource is one of those that nodes grant as devices.
func isDevice(name corev1.ResourceName) bool { return pods.IsExtended(name) }

// computeFirst orders cpu, memory and other plain names before extended resources, which have a domain.
func computeFirst(a, b corev1.ResourceName) int {
	aExtended, bExtended := strings.Contains(string(a), "/"), strings.Contains(string(b), "/")
	switch {
	case aExtended == bExtended:
		return strings.Compare(string(a), string(b))
	case aExtended:
		return 1
	default:
		return -1
	}
}
