package podcgroup

import (
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/systemd"
)

// driver makes cgroups by their names: paths, or names of slices. All of it can be repeated.
type driver interface {
	Create(name string) error
	Set(name string, r cgroup.Resources) error
	// Remove removes a cgroup and those below it; one with processes is errdefs.ErrFailedPrecondition.
	Remove(name string) error
	// Path is the cgroup's path in cgroupfs syntax.
	Path(name string) (string, error)
}

type cgroupfs struct{ host *cgroup.Host }

func (d cgroupfs) Create(name string) error {
	_, err := d.host.Create(name)
	return err
}

func (d cgroupfs) Set(name string, r cgroup.Resources) error { return d.host.Set(name, r) }
func (d cgroupfs) Remove(name string) error                  { return d.host.RemoveTree(name) }
func (d cgroupfs) Path(name string) (string, error)          { return name, nil }

var _, _ driver = cgroupfs{}, systemd.Slices{}
