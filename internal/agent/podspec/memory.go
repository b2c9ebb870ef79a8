package podspec

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

const (
	guaranteedAdj = -997
	bestEffortAdj = 1000
)

// oomScoreAdj grades containers for the kernel's choice when memory is short: the larger its request in the node's memory, the later a burstable one goes.
// What the pod requests beyond its containers counts for each of them in equal parts (KEP-2837), and a sidecar goes no earlier than the app container that
// is the first to go (KEP-753).
func oomScoreAdj(pod *v1.Pod, c *v1.Container, nodeMemory int64) int64 {
	class := pods.QOS(pod)
	switch {
	case class == v1.PodQOSGuaranteed, pods.NodeCritical(pod):
		return guaranteedAdj
	case class == v1.PodQOSBestEffort:
		return bestEffortAdj
	}
	own := allocated.Of(pod).Container(c.Name)
	request := own.Requests.Memory().Value()
	if role, _ := pods.ContainerNamed(&pod.Spec, c.Name); role == pods.Sidecar {
		request = max(request, leastRequest(pod))
	}
	request += shareOfPod(pod)
	adj := int64(bestEffortAdj)
	if nodeMemory > 0 {
		adj -= 1000 * request / nodeMemory
	}
	// Never as safe as a guaranteed one, never as exposed as one of best effort.
	return min(max(adj, 1000+guaranteedAdj), bestEffortAdj-1)
}

// leastRequest is the least that an app container requests of memory.
func leastRequest(pod *v1.Pod) int64 {
	var all []int64
	for i := range pod.Spec.Containers {
		own := allocated.Of(pod).Container(pod.Spec.Containers[i].Name)
		all = append(all, own.Requests.Memory().Value())
	}
	if len(all) == 0 {
		return 0
	}
	return slices.Min(all)
}

// shareOfPod is what of a pod's own memory request no container asks for, for each container.
func shareOfPod(pod *v1.Pod) int64 {
	has := allocated.Of(pod)
	r, n := has.Own(), int64(len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
	if r == nil || n == 0 || r.Requests.Memory().IsZero() {
		return 0
	}
	asked := has.ContainerRequests()
	return (r.Requests.Memory().Value() - asked.Memory().Value()) / n
}

// memoryFiles says what else there is to say of a container's memory: on cgroup v2 by its files, on v1 by the limit of memory and swap together.
func memoryFiles(r *cri.LinuxContainerResources, pod *v1.Pod, own *v1.ResourceRequirements, node *NodeLimits) {
	if !node.CgroupV2 {
		if node.SwapLimit {
			r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
		}
		return
	}
	set := func(file string, value int64) {
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified[file] = strconv.FormatInt(value, 10)
	}
	if node.KillAll {
		set("memory.oom.group", 1)
	}
	if node.SwapLimit {
		set("memory.swap.max", swap(pod, own, node))
	}
	request, limit := own.Requests.Memory().Value(), own.Limits.Memory().Value()
	if node.Tiered && request > 0 {
		set(ProtectedBy(pods.QOS(pod)), request)
	}
	if high := throttled(request, limit, node); high > request && request != limit {
		set("memory.high", high)
	}
}

// ProtectedBy is the file of cgroup v2 by which a class keeps the memory that it requests: the kernel takes none of it back from guaranteed pods, and from
// burstable ones after that of all others.
func ProtectedBy(class v1.PodQOSClass) string {
	if class == v1.PodQOSGuaranteed {
		return "memory.min"
	}
	return "memory.low"
}

// throttled is the use of memory from which on a container is slowed down; 0: none.
func throttled(request, limit int64, node *NodeLimits) int64 {
	if limit == 0 {
		limit = node.AllocatableMemory
	}
	if node.Throttling <= 0 || limit == 0 {
		return 0
	}
	high := int64(float64(request) + float64(limit-request)*node.Throttling)
	return high - high%max(node.PageSize, 1)
}

// swap is what a container may use of the swap (KEP-2400): nothing, or a part of it that is as large as its request is of the memory. Pods that are to
// answer fast have none: guaranteed and critical ones, and containers whose request is their limit.
func swap(pod *v1.Pod, own *v1.ResourceRequirements, node *NodeLimits) int64 {
	request, limit := own.Requests.Memory(), own.Limits.Memory()
	if !node.LimitedSwap || node.Memory <= 0 || pods.Critical(pod) || pods.QOS(pod) != v1.PodQOSBurstable || request.Cmp(*limit) == 0 || request.Value() > node.Memory {
		return 0
	}
	return int64(float64(request.Value()) / float64(node.Memory) * float64(node.Swap))
}
