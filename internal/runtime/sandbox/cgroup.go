package sandbox

import (
	"path/filepath"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
)

// cgroups makes the cgroups of sandboxes.
type cgroups struct {
	host    *cgroup.Host
	parent  string // of those whose configuration names none
	systemd bool   // systemd makes those of sandboxes that are run from now on
}

// place decides where the cgroup of a new sandbox is, and whether systemd makes it and those below it. It stays so for all of the
// sandbox's life, whatever driver a later start of monopod has.
func (c *cgroups) place(rec *Record) (err error) {
	parent := rec.Config().GetLinux().GetCgroupParent()
	if !c.systemd {
		if rec.Cgroup, err = ocispec.CgroupParent(parent); err == nil && rec.Cgroup == "" {
			rec.Cgroup = place.Cgroupfs.Name(c.parent, string(rec.ID))
		}
		return err
	}
	if parent == "" {
		parent = place.Systemd.Name(c.parent, string(rec.ID))
	}
	rec.Slice, rec.Cgroup, err = ocispec.Slice(parent)
	return err
}

// CgroupOf is the cgroup of the processes of a container of the sandbox, or of its init, which has the sandbox's id.
func (r *Record) CgroupOf(id ids.ContainerID) string {
	if r.Slice != "" {
		return systemd.NewScope(r.Slice, string(id)).Leaf()
	}
	return filepath.Join(r.Cgroup, string(id))
}

// AskFor is CgroupOf in the words in which the executor is asked to make it.
func (r *Record) AskFor(id ids.ContainerID) string {
	if r.Slice != "" {
		return systemd.NewScope(r.Slice, string(id)).String()
	}
	return filepath.Join(r.Cgroup, string(id))
}

func (c *cgroups) slices() systemd.Slices { return systemd.Slices{Host: c.host} }

func (c *cgroups) make(rec *Record) error {
	if rec.Slice != "" {
		return c.slices().Create(rec.Slice)
	}
	_, err := c.host.Create(rec.Cgroup)
	return err
}

func (c *cgroups) set(rec *Record, r cgroup.Resources) error {
	if rec.Slice != "" {
		return c.slices().Set(rec.Slice, r)
	}
	return c.host.Set(rec.Cgroup, r)
}

func (c *cgroups) remove(rec *Record) error {
	if rec.Slice != "" {
		return c.slices().Remove(rec.Slice)
	}
	return c.host.Remove(rec.Cgroup)
}
