package sandbox

import (
	"path/filepath"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/ocispec"
)

// place decides where the cgroup of a new sandbox is, and whether systemd makes it and those below it. It stays so for all of the
// sandbox's life, whatever driver a later start of monopod has.
func (m *Manager) place(rec *Record) (err error) {
	parent := rec.Config().GetLinux().GetCgroupParent()
	if !m.cfg.Systemd {
		if rec.Cgroup, err = ocispec.CgroupParent(parent); err == nil && rec.Cgroup == "" {
			rec.Cgroup = place.Cgroupfs.Name(m.cfg.CgroupParent, rec.ID)
		}
		return err
	}
	if parent == "" {
		parent = place.Systemd.Name(m.cfg.CgroupParent, rec.ID)
	}
	rec.Slice, rec.Cgroup, err = ocispec.Slice(parent)
	return err
}

// CgroupOf is the cgroup of the processes of a container of the sandbox, or of its init, which has the sandbox's id.
func (r *Record) CgroupOf(id string) string {
	if r.Slice != "" {
		return systemd.NewScope(r.Slice, id).Leaf()
	}
	return filepath.Join(r.Cgroup, id)
}

// AskFor is CgroupOf in the words in which the executor is asked to make it.
func (r *Record) AskFor(id string) string {
	if r.Slice != "" {
		return systemd.NewScope(r.Slice, id).String()
	}
	return filepath.Join(r.Cgroup, id)
}

func (m *Manager) slices() systemd.Slices { return systemd.Slices{Host: m.cfg.Cgroups} }

func (m *Manager) makeCgroup(rec *Record) error {
	if rec.Slice != "" {
		return m.slices().Create(rec.Slice)
	}
	_, err := m.cfg.Cgroups.Create(rec.Cgroup)
	return err
}

func (m *Manager) setCgroup(rec *Record, r cgroup.Resources) error {
	if rec.Slice != "" {
		return m.slices().Set(rec.Slice, r)
	}
	return m.cfg.Cgroups.Set(rec.Cgroup, r)
}

func (m *Manager) removeCgroup(rec *Record) error {
	if rec.Slice != "" {
		return m.slices().Remove(rec.Slice)
	}
	return m.cfg.Cgroups.Remove(rec.Cgroup)
}
