// Package rootfs makes what a container sees as its files: its root file system, a writable layer over the layers of its image, and what its
// mounts show, the volumes included that an image declares.
package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/host/spreaddirs"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// Images is what root file systems need of the image store.
type Images interface {
	// Layers are the directories of an image's layers, the topmost first.
	Layers(ctx context.Context, imageID ids.ImageID) ([]string, error)
}

// Config is what a Mounter works with.
type Config struct {
	Folders   container.Folders
	Images    Images
	Sandboxes sandbox.Folders
	// Host says whether files are labelled.
	Host ocispec.Host
}

// Mounter is safe for concurrent use, and its methods may be called again for what they have made.
type Mounter struct {
	cfg Config
	run string // the parent of Folders.Bundles, free of symbolic links
}

// New makes the folders of containers. All that the runtime mounts lies below the parent of Folders.Bundles.
func New(cfg Config) (*Mounter, error) {
	f := cfg.Folders
	if err := errors.Join(private.Dir(f.Layers), private.Passage(f.Bundles)); err != nil {
		return nil, err
	}
	if err := errors.Join(private.Close(f.Layers), private.Close(f.Bundles), spreaddirs.Directories(f.Layers)); err != nil {
		return nil, err
	}
	run, err := filepath.EvalSymlinks(filepath.Dir(f.Bundles))
	if err != nil {
		return nil, err
	}
	m := &Mounter{cfg: cfg, run: run}
	return m, m.isolate()
}

// isolate keeps root file systems out of other containers' recursive bind mounts. It has to come before the first of them is
// mounted: those that are there would be hidden.
func (m *Mounter) isolate() error {
	mounted, err := mount.Below(m.cfg.Folders.Bundles)
	if err != nil || len(mounted) > 0 {
		return err
	}
	return mount.Isolate(m.cfg.Folders.Bundles)
}

// Close takes away what the Mounter itself has on the host. It is for when no container is left.
func (m *Mounter) Close() error { return mount.Unmount(m.cfg.Folders.Bundles) }

// Layers finds the layers of an image. An overlay has one label for all that is seen in it; but where a program is mapped into memory, the kernel
// asks for the label of the file in its layer as well. So layers have one, too.
func (m *Mounter) Layers(ctx context.Context, imageID ids.ImageID) ([]string, error) {
	layers, err := m.cfg.Images.Layers(ctx, imageID)
	if err != nil || m.cfg.Host.SELinux == nil {
		return layers, err
	}
	for _, dir := range layers {
		if err := selinux.Ensure(ctx, dir, m.cfg.Host.SELinux.Image.String()); err != nil {
			return nil, fmt.Errorf("layer of image %s: %w", imageID, err)
		}
	}
	return layers, nil
}

// Mount mounts the image's layers with a writable layer of the container's own on top. label is that of all its files.
func (m *Mounter) Mount(id ids.ContainerID, lower []string, label string, sb *sandbox.Record) error {
	upper, work := m.cfg.Folders.Upper(id), filepath.Join(m.cfg.Folders.Written(id), "work")
	for _, dir := range []string{upper, work, m.cfg.Folders.RootFS(id)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// The upper directory's mode is that of the container's root. What the container makes of it and in it is its own: the directories
	// above are closed.
	if err := os.Chmod(upper, 0o755); err != nil {
		return err
	}
	if uid, gid := sb.HostRoot(); uid != 0 || gid != 0 {
		if err := os.Chown(upper, int(uid), int(gid)); err != nil {
			return err
		}
		// The pod's root, who is an ordinary user here, mounts the root file system by its path. (What else it mounts is opened for it.)
		if err := private.Group(m.cfg.Folders.Bundle(id), gid); err != nil {
			return err
		}
	}
	if len(lower) == 0 { // an image without layers
		empty := filepath.Join(m.cfg.Folders.Written(id), "empty")
		if err := os.MkdirAll(empty, 0o755); err != nil {
			return err
		}
		lower = []string{empty}
	}
	return m.overlay(overlay{id: id, target: m.cfg.Folders.RootFS(id), lower: lower, upper: upper, work: work, label: label}, sb, nil)
}

// Release takes what was mounted for a container's mounts and devices away from the host. The container has mounted it for
// itself when it has been created. On the host it would be in the way: a directory on which something is mounted in a copy of the
// host's root cannot be removed, and each mount namespace begins as a copy of all mounts.
func (m *Mounter) Release(id ids.ContainerID) error {
	errs := []error{mount.Detach(m.cfg.Folders.Devices(id))}
	entries, err := os.ReadDir(m.cfg.Folders.Volumes(id))
	if err != nil && !os.IsNotExist(err) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		errs = append(errs, mount.Detach(filepath.Join(m.cfg.Folders.Volumes(id), e.Name())))
	}
	return errors.Join(errs...)
}
