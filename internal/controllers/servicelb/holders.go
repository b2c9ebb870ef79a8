package servicelb

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hostPorts are those of the nodes that a pod has. Of a pod on the hosts' network those that it tells.
func hostPorts(p *corev1.Pod) (all []port) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for _, of := range containers[i].Ports {
				number := of.HostPort
				if number == 0 && p.Spec.HostNetwork {
					number = of.ContainerPort
				}
				if number != 0 {
					all = append(all, port{cmp.Or(of.Protocol, corev1.ProtocolTCP), number})
				}
			}
		}
	}
	return all
}

// holders are the ports of the nodes that pods have, by pod: what one of a thousand pods has is not read from all of them. Its methods are safe for concurrent use.
type holders struct {
	mu sync.Mutex
	by map[port]map[types.UID]string // what the pods are called
	of map[types.UID][]port
}

// set notes what a pod has now, and reports whether that is something else than it was.
func (h *holders) set(p *corev1.Pod, now []port) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.of[p.UID]
	if slices.Equal(before, now) {
		return false
	}
	if h.by == nil {
		h.by, h.of = map[port]map[types.UID]string{}, map[types.UID][]port{}
	}
	for _, had := range before {
		if delete(h.by[had], p.UID); len(h.by[had]) == 0 {
			delete(h.by, had)
		}
	}
	for _, has := range now {
		if h.by[has] == nil {
			h.by[has] = map[types.UID]string{}
		}
		h.by[has][p.UID] = fmt.Sprintf("pod %s/%s", p.Namespace, p.Name)
	}
	if h.of[p.UID] = now; len(now) == 0 {
		delete(h.of, p.UID)
	}
	return true
}

// who has a port; empty: nobody.
func (h *holders) who(has port) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := ""
	for _, name := range h.by[has] {
		if first == "" || name < first {
			first = name
		}
	}
	return first
}
