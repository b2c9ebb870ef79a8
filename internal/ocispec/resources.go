package ocispec

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resources turns CRI resources, which may be nil, into the specification's. Zero values mean "not specified", as CRI says, and -1
// for a quota or a limit means none; devices and oom_score_adj are not part of it. It serves CreateContainer, through
// Build, and UpdateContainerResources.
//
// With a memory limit and no swap limit the swap limit is the memory limit, so that a limited container does not swap. What the kernel does not
// count at all, swap or huge pages, is not limited, as with every runtime; EffectiveResources tells it.
func Resources(r *cri.LinuxContainerResources, host Host) (*specs.LinuxResources, error) {
	if err := checkResources("linux.resources.", r, host); err != nil {
		return nil, err
	}
	out := &specs.LinuxResources{CPU: cpu(r), Memory: memory(r, host)}
	for _, l := range r.GetHugepageLimits() {
		// A kubelet sends a limit for each size it knows of; without the controller there is nothing to hold it.
		if slices.Contains(host.HugepageSizes, l.PageSize) {
			out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: l.PageSize, Limit: l.Limit})
		}
	}
	if len(r.GetUnified()) > 0 {
		out.Unified = maps.Clone(r.Unified)
	}
	return out, nil
}

func cpu(r *cri.LinuxContainerResources) *specs.LinuxCPU {
	c := specs.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}
	if v := r.GetCpuShares(); v != 0 {
		c.Shares = new(uint64(v))
	}
	if v := r.GetCpuQuota(); v != 0 {
		c.Quota = new(v)
	}
	if v := r.GetCpuPeriod(); v != 0 {
		c.Period = new(uint64(v))
	}
	if c == (specs.LinuxCPU{}) {
		return nil
	}
	return &c
}

func memory(r *cri.LinuxContainerResources, host Host) *specs.LinuxMemory {
	limit, swap := r.GetMemoryLimitInBytes(), r.GetMemorySwapLimitInBytes()
	if swap == 0 {
		swap = limit
	}
	var m specs.LinuxMemory
	if limit != 0 {
		m.Limit = new(limit)
	}
	if swap != 0 && host.SwapLimit {
		m.Swap = new(swap)
	}
	if m == (specs.LinuxMemory{}) {
		return nil
	}
	return &m
}

// oomScoreAdj is always given: a container that does not say one gets 0, not that of the process that starts it.
func oomScoreAdj(r *cri.LinuxContainerResources, host Host) *int {
	adj := int(r.GetOomScoreAdj())
	if host.MinOOMScoreAdj != nil {
		adj = max(adj, *host.MinOOMScoreAdj)
	}
	return &adj
}

// checkResources refuses what cannot be; at is the name of the message.
func checkResources(at string, r *cri.LinuxContainerResources, host Host) error {
	switch {
	case r == nil:
		return nil
	case r.CpuPeriod < 0:
		return invalid(at+"cpu_period", "%d is negative", r.CpuPeriod)
	case r.CpuQuota < -1:
		return invalid(at+"cpu_quota", "%d: microseconds a period, 0 (not specified) or -1 (no limit)", r.CpuQuota)
	case r.CpuShares < 0:
		return invalid(at+"cpu_shares", "%d is negative", r.CpuShares)
	case r.MemoryLimitInBytes < -1:
		return invalid(at+"memory_limit_in_bytes", "%d: bytes, 0 (not specified) or -1 (no limit)", r.MemoryLimitInBytes)
	case r.OomScoreAdj < -1000 || r.OomScoreAdj > 1000:
		return invalid(at+"oom_score_adj", "%d is not from -1000 to 1000", r.OomScoreAdj)
	}
	if err := checkCPUSet(at+"cpuset_cpus", r.CpusetCpus); err != nil {
		return err
	}
	if err := checkCPUSet(at+"cpuset_mems", r.CpusetMems); err != nil {
		return err
	}
	if err := checkSwap(at, r); err != nil {
		return err
	}
	for _, l := range r.HugepageLimits {
		if l.GetLimit() > 0 && len(host.HugepageSizes) > 0 && !slices.Contains(host.HugepageSizes, l.GetPageSize()) {
			return unfitHost(at+"hugepage_limits", "pages of %q cannot be limited here; the controller hugetlb has %q", l.PageSize, host.HugepageSizes)
		}
	}
	for key, value := range r.Unified {
		if !host.CgroupV2 {
			return unfitHost(at+"unified", "%q needs cgroup v2, and this host has v1", key)
		}
		controller, file, ok := strings.Cut(key, ".")
		if !ok || controller == "" || file == "" || strings.ContainsAny(key, "/ \n\x00") {
			return invalid(at+"unified", "%q is not a file of cgroup v2, as memory.high is", key)
		}
		if hasNUL(value) {
			return invalid(at+"unified", "%q: the value %q holds a NUL: leave it out", key, value)
		}
		// Those do not limit: they move, freeze or kill processes, which is not a client's to do here.
		if controller == "cgroup" {
			return invalid(at+"unified", "%q is no resource: it is the cgroup itself, and not a limit of a controller", key)
		}
	}
	return nil
}

func checkSwap(at string, r *cri.LinuxContainerResources) error {
	limit, swap := r.MemoryLimitInBytes, r.MemorySwapLimitInBytes
	switch at += "memory_swap_limit_in_bytes"; {
	case swap < -1:
		return invalid(at, "%d: bytes of memory and swap together, 0 (not specified) or -1 (no limit)", swap)
	case swap > 0 && limit <= 0:
		return invalid(at, "%d is memory and swap together: it needs memory_limit_in_bytes too", swap)
	case swap > 0 && swap < limit:
		return invalid(at, "%d is memory and swap together, and less than memory_limit_in_bytes %d", swap, limit)
	}
	return nil
}

// checkCPUSet takes the list format of cpuset(7): "0-3,8".
func checkCPUSet(field, list string) error {
	if list == "" {
		return nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := from, error(nil)
		if isRange {
			to, err2 = strconv.ParseUint(last, 10, 16)
		}
		if err1 != nil || err2 != nil || to < from {
			return invalid(field, "%q is not a list like 0-3,8", list)
		}
	}
	return nil
}
