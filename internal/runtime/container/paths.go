package container

import (
	"path/filepath"

	"monopod.dev/monopod/internal/runtime/sandbox"
)

// Cgroup is the path of a container's cgroup.
func Cgroup(rec *Record, sb *sandbox.Record) string { return sb.CgroupOf(rec.ID) }

// Dir is a directory on the file system that holds the writable layers.
func (m *Manager) Dir() string { return m.cfg.Dir }

// Layer is the directory of what a container has written over its image.
func (m *Manager) Layer(id string) string { return filepath.Join(m.layer(id), "upper") }

// Written is the directory of all that a container has written, over its image and into the volumes that the image declares.
func (m *Manager) Written(id string) string { return m.layer(id) }

// RootFS is where a container's root file system is mounted.
func (m *Manager) RootFS(id string) string { return m.rootfs(id) }
