package rootfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/copytree"
	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// mostDeclared bounds the volumes that an image may declare.
const mostDeclared = 256

// Declared makes the volumes that an image declares (VOLUME): for each a directory of the container's own, beside its writable layer, with what the
// image has there. It is writable where the root file system is not, and no part of an overlay, which databases and container engines need. None is
// made where a mount of the container is, or the kernel's file systems are.
func (m *Mounter) Declared(ctx context.Context, rec *container.Record, sb *sandbox.Record, declared map[string]struct{}) ([]ocispec.ResolvedMount, error) {
	if len(declared) > mostDeclared {
		return nil, fmt.Errorf("the image declares %d volumes; at most %d are possible: %w", len(declared), mostDeclared, errdefs.ErrInvalidArgument)
	}
	root := m.cfg.Folders.RootFS(rec.ID)
	taken := takenPlaces(rec.Config().GetMounts(), func(name string) string { return placeIn(root, name) })
	var all []ocispec.ResolvedMount
	for i, name := range slices.Sorted(maps.Keys(declared)) {
		at := placeIn(root, path.Clean("/"+name))
		if taken(at) {
			continue
		}
		dir := filepath.Join(m.cfg.Folders.Written(rec.ID), "volumes", strconv.Itoa(i))
		made, err := m.fill(ctx, rec, sb, at, dir)
		if err != nil {
			return nil, fmt.Errorf("the image's volume %s: %w", name, err)
		}
		if made {
			all = append(all, ocispec.ResolvedMount{Mount: &cri.Mount{ContainerPath: at}, Source: dir})
		}
	}
	return all, nil
}

// takenPlaces says where no volume is made: at the mounts of a container, below those of them that are read-only (nothing can be made there
// to mount it on), at the root, and where the kernel's file systems are. place finds where links lead.
func takenPlaces(mounts []*cri.Mount, place func(string) string) func(at string) bool {
	var exact, below []string
	for _, mt := range mounts {
		at := path.Clean(mt.GetContainerPath())
		exact = append(exact, at, place(at))
		if mt.GetReadonly() || mt.GetImage().GetImage() != "" {
			below = append(below, at, place(at))
		}
	}
	exact, below = append(exact, "/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"), append(below, "/proc", "/sys", "/dev")
	return func(at string) bool {
		return slices.Contains(exact, at) || slices.ContainsFunc(below, func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") })
	}
}

// placeIn finds where the links of a path in a root file system lead that nobody changes; what is missing leads nowhere.
func placeIn(root, name string) string {
	for at, rest := name, ""; at != "/"; at, rest = path.Dir(at), path.Join(path.Base(at), rest) {
		if found, err := within(root, at); err == nil {
			if top, err := filepath.EvalSymlinks(root); err == nil {
				return path.Join("/", strings.TrimPrefix(found, top), rest)
			}
		}
	}
	return name
}

// fill makes a directory what the image has at a path, and tells with false that it has something else there than a directory.
func (m *Mounter) fill(ctx context.Context, rec *container.Record, sb *sandbox.Record, at, dir string) (bool, error) {
	root, err := unix.Open(m.cfg.Folders.RootFS(rec.ID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(root)
	var from *os.File
	fd, err := openIn(root, strings.TrimPrefix(at, "/"))
	switch {
	case err == nil:
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return false, err
		}
		if from, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return false, err
		}
		defer from.Close()
	case errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return false, nil
	default:
		return false, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	uid, gid := sb.HostRoot()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, int(uid), int(gid))); err != nil {
		return false, err
	}
	if from != nil {
		to, err := os.Open(dir)
		if err != nil {
			return false, err
		}
		defer to.Close()
		if err := copytree.Copy(ctx, from, to); err != nil {
			return false, err
		}
	}
	if rec.SELinux.Mount == "" {
		return true, nil
	}
	plain, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	return true, selinux.Relabel(ctx, plain, rec.SELinux.Mount)
}
