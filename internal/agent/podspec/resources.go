package podspec

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/pods"
)

const (
	cpuPeriod     = 100_000 // microseconds
	minQuota      = 1_000   // the kernel's least quota, in microseconds
	minShares     = 2
	maxShares     = 262_144
	sharesPerCPU  = 1024
	guaranteedAdj = -997
	bestEffortAdj = 1000
)

// oomScoreAdj grades containers for the kernel's choice when memory is short: the larger its request in the node's
// memory, the later a burstable one goes.
func oomScoreAdj(pod *v1.Pod, c *v1.Container, nodeMemory int64) int64 {
	switch pods.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedAdj
	case v1.PodQOSBestEffort:
		return bestEffortAdj
	}
	request := c.Resources.Requests.Memory().Value()
	if request == 0 {
		request = c.Resources.Limits.Memory().Value()
	}
	adj := int64(bestEffortAdj)
	if nodeMemory > 0 {
		adj -= 1000 * request / nodeMemory
	}
	// Never as safe as a guaranteed one, never as exposed as one of best effort.
	return min(max(adj, 1000+guaranteedAdj), bestEffortAdj-1)
}

func containerResources(in *ContainerInput) *cri.LinuxContainerResources {
	r := linuxResources(in.Container.Resources.Requests, in.Container.Resources.Limits)
	r.OomScoreAdj = oomScoreAdj(in.Pod, in.Container, in.NodeMemory)
	return r
}

func podResources(pod *v1.Pod) *cri.LinuxContainerResources {
	r := pods.Resources(pod)
	return linuxResources(r.Requests, r.Limits)
}

func overhead(pod *v1.Pod) *cri.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return nil
	}
	return linuxResources(pod.Spec.Overhead, pod.Spec.Overhead)
}

func linuxResources(requests, limits v1.ResourceList) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{CpuPeriod: cpuPeriod}
	cpu := requests.Cpu().MilliValue()
	if cpu == 0 {
		cpu = limits.Cpu().MilliValue()
	}
	r.CpuShares = min(max(cpu*sharesPerCPU/1000, minShares), maxShares)
	if limit := limits.Cpu().MilliValue(); limit > 0 {
		r.CpuQuota = max(limit*cpuPeriod/1000, minQuota)
	}
	r.MemoryLimitInBytes = limits.Memory().Value()
	for name, q := range limits {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			if page, err := resource.ParseQuantity(size); err == nil {
				r.HugepageLimits = append(r.HugepageLimits, &cri.HugepageLimit{
					PageSize: pageSizeName(page.Value()), Limit: uint64(q.Value()),
				})
			}
		}
	}
	slices.SortFunc(r.HugepageLimits, func(a, b *cri.HugepageLimit) int { return cmp.Compare(a.PageSize, b.PageSize) })
	return r
}

// pageSizeName writes a page size as the kernel's hugetlb cgroup names it: 2MB, 1GB.
func pageSizeName(bytes int64) string {
	q := resource.NewQuantity(bytes, resource.BinarySI).String() // 2Mi
	return strings.TrimSuffix(q, "i") + "B"
}

// ExtendedResources are what a container asks for beyond the resources that Kubernetes itself defines: names with a
// domain outside kubernetes.io, by their whole amount.
func ExtendedResources(c *v1.Container) map[string]int64 {
	var found map[string]int64
	for name, q := range c.Resources.Limits {
		if !pods.IsExtended(name) || q.IsZero() {
			continue
		}
		if found == nil {
			found = map[string]int64{}
		}
		found[string(name)] = q.Value()
	}
	return found
}
