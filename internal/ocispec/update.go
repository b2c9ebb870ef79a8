package ocispec

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MergeResources returns the resources that hold after an update of old ones: what the update specifies takes the place of
// what was there, and what it leaves out (a zero; a page size or a key of unified that it does not name) stays. Both may be nil;
// neither is changed.
func MergeResources(old, update *cri.LinuxContainerResources) *cri.LinuxContainerResources {
	out := &cri.LinuxContainerResources{}
	if old != nil {
		out = proto.Clone(old).(*cri.LinuxContainerResources)
	}
	take := func(field *int64, value int64) {
		if value != 0 {
			*field = value
		}
	}
	take(&out.CpuPeriod, update.GetCpuPeriod())
	take(&out.CpuQuota, update.GetCpuQuota())
	take(&out.CpuShares, update.GetCpuShares())
	take(&out.MemoryLimitInBytes, update.GetMemoryLimitInBytes())
	take(&out.MemorySwapLimitInBytes, update.GetMemorySwapLimitInBytes())
	take(&out.OomScoreAdj, update.GetOomScoreAdj())
	if v := update.GetCpusetCpus(); v != "" {
		out.CpusetCpus = v
	}
	if v := update.GetCpusetMems(); v != "" {
		out.CpusetMems = v
	}
	for _, l := range update.GetHugepageLimits() {
		l = proto.Clone(l).(*cri.HugepageLimit)
		i := slices.IndexFunc(out.HugepageLimits, func(o *cri.HugepageLimit) bool { return o.GetPageSize() == l.GetPageSize() })
		if i >= 0 {
			out.HugepageLimits[i] = l
		} else {
			out.HugepageLimits = append(out.HugepageLimits, l)
		}
	}
	if len(update.GetUnified()) > 0 && out.Unified == nil {
		out.Unified = map[string]string{}
	}
	maps.Copy(out.Unified, update.GetUnified())
	return out
}

// EffectiveResources returns what resources come to on this host: oom_score_adj raised to the lowest that can be set, the swap limit
// that a memory limit implies, and without what the kernel does not count: swap, or huge pages. nil stays nil.
func EffectiveResources(r *cri.LinuxContainerResources, host Host) *cri.LinuxContainerResources {
	if r == nil {
		return nil
	}
	out := proto.Clone(r).(*cri.LinuxContainerResources)
	out.OomScoreAdj = int64(*oomScoreAdj(r, host))
	if !host.SwapLimit {
		out.MemorySwapLimitInBytes = 0
	} else if out.MemorySwapLimitInBytes == 0 {
		out.MemorySwapLimitInBytes = out.MemoryLimitInBytes
	}
	out.HugepageLimits = slices.DeleteFunc(out.HugepageLimits, func(l *cri.HugepageLimit) bool {
		return !slices.Contains(host.HugepageSizes, l.GetPageSize())
	})
	return out
}

// OOMScoreAdj is the oom_score_adj that a container with these resources has on this host.
func OOMScoreAdj(r *cri.LinuxContainerResources, host Host) int { return *oomScoreAdj(r, host) }
