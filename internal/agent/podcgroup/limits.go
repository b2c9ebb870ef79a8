package podcgroup

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/admit"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// ofPod is what a pod's cgroup may have: weight by what it requests, the overhead of its sandbox included, and limits where each container is limited, or the
// pod as a whole.
func ofPod(pod *v1.Pod, node *podspec.NodeLimits, sizes []string) cgroup.Resources {
	class, whole := pods.QOS(pod), allocated.Of(pod).Whole()
	if class == v1.PodQOSBestEffort {
		return cgroup.Resources{CPUShares: shares(0), Hugepages: hugepages(whole.Requests, sizes)}
	}
	r := cgroup.Resources{CPUShares: shares(whole.Requests.Cpu().MilliValue()), Hugepages: hugepages(whole.Requests, sizes)}
	if quota := podspec.Quota(whole.Limits.Cpu().MilliValue()); quota > 0 {
		r.CPUQuota, r.CPUPeriod = &quota, new(uint64(podspec.Period))
	}
	if memory := whole.Limits.Memory().Value(); memory > 0 {
		r.MemoryLimit = &memory
	}
	if request := whole.Requests.Memory().Value(); node.Tiered && node.CgroupV2 && request > 0 {
		r.Unified = map[string]string{podspec.ProtectedBy(class): strconv.FormatInt(request, 10)}
	}
	return r
}

// hugepages are limits by page size, as far as the host can hold them.
func hugepages(requests v1.ResourceList, sizes []string) (limits map[string]uint64) {
	for name, q := range requests {
		size, ok := podspec.PageSize(name)
		if !ok || !slices.Contains(sizes, size) {
			continue
		}
		if limits == nil {
			limits = map[string]uint64{}
		}
		limits[size] += uint64(q.Value())
	}
	return limits
}

// ofClasses is what the pods of the classes may have together: those of Guaranteed, which have no cgroup of their own, protect their memory in that of all.
func ofClasses(sums admit.QOSSums, node *podspec.NodeLimits) (all, burstable cgroup.Resources) {
	burstable.CPUShares = shares(sums.BurstableMilliCPU)
	if node.Tiered && node.CgroupV2 {
		all.Unified = map[string]string{podspec.ProtectedBy(v1.PodQOSGuaranteed): strconv.FormatInt(sums.GuaranteedMemory+sums.BurstableMemory, 10)}
		burstable.Unified = map[string]string{podspec.ProtectedBy(v1.PodQOSBurstable): strconv.FormatInt(sums.BurstableMemory, 10)}
	}
	return all, burstable
}

func shares(milliCPU int64) *uint64 { return new(uint64(podspec.Shares(milliCPU))) }
