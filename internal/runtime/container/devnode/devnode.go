// Package devnode finds the host's device nodes for containers, and makes those of containers whose pod has a user namespace.
package devnode

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/ocispec"
)

// Resolve looks up the host's nodes for CRI's devices; a directory stands for all nodes in it.
func Resolve(devices []*cri.Device) ([]ocispec.Device, error) {
	var all []ocispec.Device
	for _, d := range devices {
		source, err := filepath.EvalSymlinks(d.GetHostPath())
		if err != nil {
			return nil, fmt.Errorf("device %s: host_path %s: %w: %w", d.GetContainerPath(), d.GetHostPath(), err, errdefs.ErrInvalidArgument)
		}
		found, err := nodesBelow(source, d.GetContainerPath(), d.GetPermissions())
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", d.GetContainerPath(), err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("device %s: host_path %s is no device node and holds none: %w", d.GetContainerPath(), source, errdefs.ErrInvalidArgument)
		}
		all = append(all, found...)
	}
	return all, nil
}

// All lists the host's device nodes, for privileged containers. Terminals and shared memory are the container's own.
func All() ([]ocispec.Device, error) {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return nil, err
	}
	var all []ocispec.Device
	for _, e := range entries {
		switch e.Name() {
		case "pts", "shm", "fd", "mqueue", "console", "ptmx", "hugepages":
			continue
		}
		path := filepath.Join("/dev", e.Name())
		found, err := nodesBelow(path, path, "rwm")
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// nodesBelow lists the device nodes at or below source, as they appear at or below target.
func nodesBelow(source, target, permissions string) ([]ocispec.Device, error) {
	var all []ocispec.Device
	err := filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // devices come and go
		}
		if err != nil || e.IsDir() || e.Type()&fs.ModeDevice == 0 {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		kind := "b"
		if st.Mode&unix.S_IFMT == unix.S_IFCHR {
			kind = "c"
		}
		all = append(all, ocispec.Device{Path: filepath.Join(target, rel), Type: kind,
			Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)),
			FileMode: st.Mode & 0o777, UID: st.Uid, GID: st.Gid, Permissions: permissions})
		return nil
	})
	return all, err
}
