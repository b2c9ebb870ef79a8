package agent

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/pods"
)

// hostPorts knows which pods have which ports of the host. All methods are safe for concurrent use.
type hostPorts struct {
	// known are the node's pods as the API server has them.
	known func() []*v1.Pod

	mu    sync.Mutex
	taken map[types.UID][]pods.HostPort
}

// Take implements act.Ports.
func (h *hostPorts) Take(pod *v1.Pod, begun bool) bool {
	ports := pods.HostPorts(&pod.Spec)
	if len(ports) == 0 {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.taken[pod.UID]; ok {
		return true
	}
	if !begun && h.conflicts(pod.UID, ports) {
		return false
	}
	if h.taken == nil {
		h.taken = map[types.UID][]pods.HostPort{}
	}
	h.taken[pod.UID] = ports
	return true
}

// conflicts says that another pod has one of the ports, those too that were begun before this agent's start and that it
// has not looked at yet. h.mu is held.
func (h *hostPorts) conflicts(uid types.UID, ports []pods.HostPort) bool {
	for _, others := range h.taken {
		if pods.Conflict(ports, others) {
			return true
		}
	}
	for _, other := range h.known() {
		over := other.Status.Phase == v1.PodSucceeded || other.Status.Phase == v1.PodFailed
		if other.UID != uid && !over && other.Status.StartTime != nil && pods.Conflict(ports, pods.HostPorts(&other.Spec)) {
			return true
		}
	}
	return false
}

// Release implements act.Ports.
func (h *hostPorts) Release(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.taken, uid)
}
