package podspec

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/pods/allocated"
)

const (
	cpuPeriod    = 100_000 // microseconds
	minQuota     = 1_000   // the kernel's least quota, in microseconds
	minShares    = 2
	maxShares    = 262_144
	sharesPerCPU = 1024
)

// NodeLimits is what of the node, and of its configuration, the resources of containers depend on.
type NodeLimits struct {
	// Memory and Swap are the machine's, AllocatableMemory what pods may have of it, PageSize that of a page, all in bytes.
	Memory, Swap, AllocatableMemory, PageSize int64
	// CgroupV2: the host has cgroup v2, and no v1 beside it. SwapLimit: the kernel counts swap.
	CgroupV2, SwapLimit bool
	// HugepageSizes are the sizes of huge pages that are limited for every container, to nothing unless it asks for some, in the kernel's form (2MB).
	HugepageSizes []string
	// LimitedSwap: burstable pods may use swap, as much of it as they request of the memory.
	LimitedSwap bool
	// Throttling is where between its memory request and its limit a container is slowed down, from 0 (it is not) to 1.
	Throttling float64
	// Tiered: the kernel leaves containers the memory that they request.
	Tiered bool
	// KillAll: where a container is out of memory, all its processes are killed.
	KillAll bool
}

func containerResources(in *ContainerInput) *cri.LinuxContainerResources {
	has := allocated.Of(in.Pod)
	own := has.Container(in.Container.Name)
	r := linuxResources(own.Requests, has.Limits(in.Container.Name))
	r.OomScoreAdj = oomScoreAdj(in.Pod, in.Container, in.Node.Memory)
	r.HugepageLimits = withZeros(r.HugepageLimits, in.Node.HugepageSizes)
	memoryFiles(r, in.Pod, &own, &in.Node)
	return r
}

func podResources(pod *v1.Pod) *cri.LinuxContainerResources {
	r := allocated.Of(pod).WithoutSandbox()
	return linuxResources(r.Requests, r.Limits)
}

func overhead(pod *v1.Pod) *cri.LinuxContainerResources {
	all := allocated.Of(pod).Overhead()
	if len(all) == 0 {
		return nil
	}
	return linuxResources(all, all)
}

func linuxResources(requests, limits v1.ResourceList) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{CpuPeriod: cpuPeriod}
	cpu, requested := requests[v1.ResourceCPU]
	if !requested { // API servers make the limit the request; a request of nothing is one
		cpu = limits[v1.ResourceCPU]
	}
	r.CpuShares = Shares(cpu.MilliValue())
	r.CpuQuota = Quota(limits.Cpu().MilliValue())
	r.MemoryLimitInBytes = limits.Memory().Value()
	for name, q := range limits {
		if size, ok := PageSize(name); ok {
			r.HugepageLimits = append(r.HugepageLimits, &cri.HugepageLimit{PageSize: size, Limit: uint64(q.Value())})
		}
	}
	slices.SortFunc(r.HugepageLimits, byPageSize)
	return r
}

func byPageSize(a, b *cri.HugepageLimit) int { return cmp.Compare(a.PageSize, b.PageSize) }

// withZeros adds a limit of nothing for each size that has none.
func withZeros(limits []*cri.HugepageLimit, sizes []string) []*cri.HugepageLimit {
	for _, size := range sizes {
		if !slices.ContainsFunc(limits, func(l *cri.HugepageLimit) bool { return l.PageSize == size }) {
			limits = append(limits, &cri.HugepageLimit{PageSize: size})
		}
	}
	slices.SortFunc(limits, byPageSize)
	return limits
}

// Shares are the weight of so many thousandths of a processor, as cgroup v1 counts it.
func Shares(milliCPU int64) int64 {
	return min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares)
}

// Quota is what of each Period so many thousandths of a processor are, in microseconds; 0 for none.
func Quota(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*cpuPeriod/1000, minQuota)
}

// Period is that of all quotas, in microseconds.
const Period = cpuPeriod

// PageSize is the size of the huge pages that a resource is, as the kernel's hugetlb cgroup names it: 2MB, 1GB. ok says that it is one of huge pages.
func PageSize(name v1.ResourceName) (size string, ok bool) {
	text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return "", false
	}
	page, err := resource.ParseQuantity(text)
	if err != nil {
		return "", false
	}
	return strings.TrimSuffix(resource.NewQuantity(page.Value(), resource.BinarySI).String(), "i") + "B", true
}
