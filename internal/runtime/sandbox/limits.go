package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/records"
)

// limits are what a pod's cgroup is limited to: the sum of its containers' resources and of its overhead. What has no limit in
// resources has none at all. The score of the OOM killer is no part of it: it belongs to processes.
func limits(overhead, resources *cri.LinuxContainerResources, host ocispec.Host) cgroup.Resources {
	r, over := resources, overhead
	var out cgroup.Resources
	if shares := r.GetCpuShares(); shares > 0 {
		out.CPUShares = new(uint64(shares + over.GetCpuShares()))
	}
	if quota := r.GetCpuQuota(); quota != 0 {
		period := r.GetCpuPeriod()
		if extra := over.GetCpuQuota(); quota > 0 && extra > 0 {
			// The overhead may be counted in another period.
			if p := over.GetCpuPeriod(); p > 0 && period > 0 {
				extra = extra * period / p
			}
			quota += extra
		}
		out.CPUQuota = new(quota)
		if period > 0 {
			out.CPUPeriod = new(uint64(period))
		}
	}
	if memory := r.GetMemoryLimitInBytes(); memory != 0 {
		extra := max(0, over.GetMemoryLimitInBytes())
		if memory > 0 {
			memory += extra
		}
		out.MemoryLimit = new(memory)
		if swap := r.GetMemorySwapLimitInBytes(); swap != 0 && host.SwapLimit {
			if swap > 0 {
				swap += extra
			}
			out.MemorySwap = new(swap)
		}
	}
	out.CPUs, out.Mems = r.GetCpusetCpus(), r.GetCpusetMems()
	for _, l := range r.GetHugepageLimits() {
		if !slices.Contains(host.HugepageSizes, l.GetPageSize()) {
			continue // a limit of 0, which nothing here can hold
		}
		if out.Hugepages == nil {
			out.Hugepages = map[string]uint64{}
		}
		out.Hugepages[l.PageSize] = l.Limit
		for _, e := range over.GetHugepageLimits() {
			if e.GetPageSize() == l.PageSize {
				out.Hugepages[l.PageSize] += e.Limit
			}
		}
	}
	if len(r.GetUnified()) > 0 {
		out.Unified = maps.Clone(r.Unified)
	}
	return out
}

// Overhead is what the pod itself is reckoned to need, with what updates have changed; nil: nothing. It is not to be changed.
func (r *Record) Overhead() *cri.LinuxContainerResources {
	if r.Updated != nil {
		return r.Updated.Message.GetOverhead()
	}
	return r.Config().GetLinux().GetOverhead()
}

// Resources is the sum of the containers' resources, with what updates have changed; nil: none is known. It is not to be changed.
func (r *Record) Resources() *cri.LinuxContainerResources {
	if r.Updated != nil {
		return r.Updated.Message.GetResources()
	}
	return r.Config().GetLinux().GetResources()
}

// Update changes what the pod's cgroup is limited to. Of the two, a nil one stays, and so does what the other one leaves out. A cgroup
// that a client has made is its client's to limit: then the new resources are only kept. After an error everything is as it was. An
// update that a crash has interrupted is finished by recovery.
func (m *Manager) Update(ctx context.Context, id ids.SandboxID, overhead, resources *cri.LinuxContainerResources) error {
	host := m.cfg.Host
	return m.ops.Do(ctx, id, func() error {
		rec, err := m.cfg.Records.Get(id)
		if err != nil {
			return err
		}
		if !rec.Ready() {
			return fmt.Errorf("sandbox %s is not ready; only the resources of one that is can be updated: %w", id, errdefs.ErrFailedPrecondition)
		}
		next := &cri.UpdatePodSandboxResourcesRequest{Overhead: rec.Overhead(), Resources: rec.Resources()}
		if overhead != nil {
			next.Overhead = ocispec.MergeResources(rec.Overhead(), overhead)
		}
		if resources != nil {
			next.Resources = ocispec.MergeResources(rec.Resources(), resources)
		}
		if err := ocispec.ValidateSandboxResources("", next.Overhead, next.Resources, host); err != nil {
			return err
		}
		before := rec.Updated
		if rec, err = m.cfg.Records.Modify(id, func(r *Record) bool {
			r.Updated = &records.Proto[*cri.UpdatePodSandboxResourcesRequest]{Message: next}
			return true
		}); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-update/persisted"); err != nil {
			return err
		}
		if err := m.limit(&rec); err != nil {
			_, undone := m.cfg.Records.Modify(id, func(r *Record) bool { r.Updated = before; return true })
			return errors.Join(err, undone)
		}
		return nil
	})
}

// limit writes the limits of a cgroup that was made for the sandbox, all or none.
func (m *Manager) limit(rec *Record) error {
	if !rec.OwnCgroup {
		return nil
	}
	if err := m.cgroups.set(rec, limits(rec.Overhead(), rec.Resources(), m.cfg.Host)); err != nil {
		return fmt.Errorf("linux.resources: %w", err)
	}
	return nil
}
