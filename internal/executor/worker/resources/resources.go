//go:build cgo

// Package resources says what an update of a container's resources may change, and what it comes to. Its functions are pure.
package resources

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/specconv"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Refused names what of an update cannot be done while a container runs: what cannot be taken back, or could be
// overlooked in silence.
func Refused(r *specs.LinuxResources, v2 bool) error {
	memory, cpu := specs.LinuxMemory{}, specs.LinuxCPU{}
	if r.Memory != nil {
		memory = *r.Memory
	}
	if r.CPU != nil {
		cpu = *r.CPU
	}
	for _, no := range []struct {
		named bool
		what  string
	}{
		{len(r.Devices) > 0, "devices"},
		{r.BlockIO != nil, "blockIO"},
		{r.Network != nil, "network"},
		{len(r.Rdma) > 0, "rdma"},
		{memory.DisableOOMKiller != nil, "memory.disableOOMKiller"},
		{memory.Swappiness != nil && v2, "memory.swappiness (on cgroup v2)"},
		{cpu.RealtimePeriod != nil || cpu.RealtimeRuntime != nil, "cpu.realtimePeriod and realtimeRuntime"},
		{len(r.Unified) > 0 && !v2, "unified (on cgroup v1)"},
	} {
		if no.named {
			return fmt.Errorf("%s of a container cannot be changed", no.what)
		}
	}
	for key := range r.Unified {
		if strings.Contains(key, "/") || strings.HasPrefix(key, "cgroup.") || !strings.Contains(key, ".") {
			return fmt.Errorf("unified: %q is not a limit of a controller (CONTROLLER.NAME)", key)
		}
	}
	return nil
}

// Merged returns the old resources with what the change names.
func Merged(old, change *specs.LinuxResources) (*specs.LinuxResources, error) {
	next := &specs.LinuxResources{}
	for _, r := range []*specs.LinuxResources{old, change} {
		if r == nil {
			continue
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		pages := next.HugepageLimits
		next.HugepageLimits = nil
		if err := json.Unmarshal(raw, next); err != nil { // it leaves alone what raw does not name
			return nil, err
		}
		for _, p := range pages {
			if !slices.ContainsFunc(next.HugepageLimits, func(n specs.LinuxHugepageLimit) bool { return n.Pagesize == p.Pagesize }) {
				next.HugepageLimits = append(next.HugepageLimits, p)
			}
		}
	}
	return next, nil
}

// Completed returns the change with the other half of each pair of values that can only be set together, and with the
// swap space kept as it was when the memory limit changes.
func Completed(old, change *specs.LinuxResources, v2 bool) *specs.LinuxResources {
	c := *change
	if c.CPU != nil && old.CPU != nil {
		cpu := *c.CPU
		if cpu.Quota != nil && cpu.Period == nil {
			cpu.Period = old.CPU.Period
		}
		if cpu.Period != nil && cpu.Quota == nil {
			cpu.Quota = old.CPU.Quota
		}
		c.CPU = &cpu
	}
	if c.Memory == nil || old.Memory == nil {
		return &c
	}
	memory := *c.Memory
	switch was := old.Memory; {
	case memory.Swap != nil && memory.Limit == nil:
		memory.Limit = was.Limit
	case v2 || memory.Limit == nil || memory.Swap != nil || was.Swap == nil || was.Limit == nil:
	case *memory.Limit > 0 && *was.Limit > 0 && *was.Swap >= *was.Limit: // v1 limits the sum of both
		swap := *memory.Limit + *was.Swap - *was.Limit
		memory.Swap = &swap
	}
	c.Memory = &memory
	return &c
}

// Translated translates a change for libcontainer's cgroup managers. Device rules stay as they are.
func Translated(r *specs.LinuxResources) (*cgroups.Resources, error) {
	spec := &specs.Spec{Linux: &specs.Linux{CgroupsPath: "/", Resources: r}}
	cg, err := specconv.CreateCgroupConfig(&specconv.CreateOpts{Spec: spec}, nil)
	if err != nil {
		return nil, err
	}
	cg.Resources.Devices, cg.Resources.SkipDevices = nil, true
	cg.Resources.Unified = maps.Clone(r.Unified)
	return cg.Resources, nil
}
