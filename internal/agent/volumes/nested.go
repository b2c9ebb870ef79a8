package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container may have a volume mounted below another one. Where that is read-only in the container, as all are that are written from objects, no runtime can
// make the place for it. So it is made here, in the volume itself, where it stays as long as the volume does.

// makeNested makes the places of mounts that are below others. In those of shut nobody but the agent can make them.
func makeNested(mounts []*cri.Mount, shut map[*cri.Mount]bool) error {
	for _, mt := range mounts {
		above := holder(mounts, mt)
		if above == nil || !shut[above] {
			continue
		}
		rel, err := filepath.Rel(filepath.Clean(above.ContainerPath), filepath.Clean(mt.ContainerPath))
		if err != nil {
			return err
		}
		directory := mt.Image != nil
		if !directory {
			info, err := os.Stat(mt.HostPath)
			if err != nil {
				continue // the runtime tells what is wrong with it
			}
			directory = info.IsDir()
		}
		if err := makePoint(above.HostPath, rel, directory); err != nil {
			return fmt.Errorf("make the place of the mount at %s in the volume at %s: %w", mt.ContainerPath, above.ContainerPath, err)
		}
	}
	return nil
}

// holder is the mount that another one is to be mounted in, or nil.
func holder(mounts []*cri.Mount, of *cri.Mount) (found *cri.Mount) {
	path := filepath.Clean(of.ContainerPath)
	for _, mt := range mounts {
		at := filepath.Clean(mt.ContainerPath)
		if mt != of && strings.HasPrefix(path, strings.TrimSuffix(at, "/")+"/") && (found == nil || len(at) > len(filepath.Clean(found.ContainerPath))) {
			found = mt
		}
	}
	return found
}

// makePoint makes what can be mounted on in a volume, unless something is there. Links are followed as long as they stay within the volume.
func makePoint(dir, rel string, directory bool) error {
	root, err := openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil // the runtime tells that
	}
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := openWithin(root, dir, rel)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if directory {
		return makeWithin(root, dir, rel)
	}
	parent := filepath.Dir(rel)
	if parent != "." {
		if err := makeWithin(root, dir, parent); err != nil {
			return err
		}
	}
	at, err := openWithin(root, dir, parent)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	// By a descriptor that is only a path nothing is made.
	in, err := openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_BENEATH)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	fd, err = unix.Openat(in, filepath.Base(rel), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
