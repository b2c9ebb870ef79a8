package systemd

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/cgroups"
	libsystemd "github.com/opencontainers/cgroups/systemd"

	"monopod.dev/monopod/internal/host/cgroup"
)

// Slices makes the slices of pods. Its methods are safe for concurrent use.
type Slices struct{ Host *cgroup.Host }

func (s Slices) manager(name string, r *cgroups.Resources) (*libsystemd.UnifiedManager, error) {
	p, err := slicePath(name)
	if err != nil {
		return nil, err
	}
	return libsystemd.NewUnifiedManager(&cgroups.Cgroup{Systemd: true, Parent: parent(name), Name: name, Resources: r}, dir(p))
}

// Path is the cgroup of a slice: that of a-b.slice is /a.slice/a-b.slice.
func (s Slices) Path(name string) (string, error) { return slicePath(name) }

// Create makes a slice, and those that it is in. One that is there is left as it is.
func (s Slices) Create(name string) error {
	m, err := s.manager(name, &cgroups.Resources{SkipDevices: true})
	if err == nil {
		const nobody = -1
		err = m.Apply(nobody)
	}
	if err != nil {
		return fmt.Errorf("slice %s: %w", name, err)
	}
	return nil
}

// Set limits a slice, all or nothing.
func (s Slices) Set(name string, r cgroup.Resources) error {
	p, err := slicePath(name)
	if err != nil {
		return err
	}
	own := resources(r)
	m, err := s.manager(name, own)
	if err != nil {
		return err
	}
	// The kernel's word comes first: what it refuses need not be taken back from systemd.
	return s.Host.SetWith(p, r, func() error {
		if err := m.Set(own); err != nil {
			return fmt.Errorf("slice %s: %w", name, err)
		}
		return nil
	})
}

// resources are what systemd has properties for.
func resources(r cgroup.Resources) *cgroups.Resources {
	out := &cgroups.Resources{SkipDevices: true, CpusetCpus: r.CPUs, CpusetMems: r.Mems, PidsLimit: r.PidsLimit, Unified: r.Unified}
	if r.CPUShares != nil {
		out.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(*r.CPUShares)
	}
	if r.CPUQuota != nil {
		out.CpuQuota = *r.CPUQuota
		if r.CPUPeriod != nil {
			out.CpuPeriod = *r.CPUPeriod
		}
	}
	if r.MemoryLimit != nil {
		out.Memory = *r.MemoryLimit
	}
	if r.MemorySwap != nil {
		out.MemorySwap = *r.MemorySwap
	}
	return out
}

// Remove ends a slice and removes its cgroup. It is idempotent. One with processes is errdefs.ErrFailedPrecondition: systemd would kill
// them.
func (s Slices) Remove(name string) error {
	p, err := slicePath(name)
	if err != nil {
		return err
	}
	pids, err := s.Host.Processes(p)
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("there are processes in it (%v): %w", pids, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return fmt.Errorf("remove slice %s: %w", name, err)
	}
	m, err := s.manager(name, &cgroups.Resources{SkipDevices: true})
	if err == nil {
		err = m.Destroy()
	}
	if err != nil {
		return fmt.Errorf("remove slice %s: %w", name, err)
	}
	return nil
}

// stopBound bounds what is asked of systemd where the library sets no bound.
const stopBound = 30 * time.Second

// StopTree ends a slice with all that is in it.
func StopTree(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, stopBound)
	defer cancel()
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", done); err != nil {
		return nil // it is not loaded: there is nothing to stop
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop slice %s: %w", name, ctx.Err())
	}
}
