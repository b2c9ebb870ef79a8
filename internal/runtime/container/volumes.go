package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// ImageVolume is an image that one of a container's mounts shows. What a tag means may change while the container lives: this
// is what it meant when the container was created.
type ImageVolume struct {
	// Mount is the index among the configuration's mounts.
	Mount int `json:"mount"`
	// ImageID is the image's id, which is also what PullImage has returned and what clients compare with.
	ImageID string `json:"imageID"`
}

// imageVolumes finds the images that mounts ask for. They have to be there: pulling is the client's part.
func (m *Manager) imageVolumes(ctx context.Context, mounts []*cri.Mount) ([]ImageVolume, error) {
	var all []ImageVolume
	for i, mt := range mounts {
		ref := mt.GetImage().GetImage()
		if ref == "" {
			continue
		}
		img, err := m.cfg.Images.Get(ctx, ref)
		if errdefs.IsNotFound(err) {
			err = fmt.Errorf("%w: pull it first", err)
		}
		if err != nil {
			return nil, fmt.Errorf("mount at %s: %w", mt.GetContainerPath(), err)
		}
		all = append(all, ImageVolume{Mount: i, ImageID: img.ID})
	}
	return all, nil
}

// images are the ids of all images that the container holds, each once.
func (r *Record) images() []string {
	var ids []string
	if r.ImageID != "" {
		ids = append(ids, r.ImageID)
	}
	for _, v := range r.ImageVolumes {
		ids = append(ids, v.ImageID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Mounts are the mounts as clients asked for them; those of images tell which image it is.
func (r *Record) Mounts() []*cri.Mount {
	mounts := r.Config().GetMounts()
	if len(r.ImageVolumes) == 0 {
		return mounts
	}
	mounts = slices.Clone(mounts)
	for _, v := range r.ImageVolumes {
		if v.Mount >= len(mounts) {
			continue // a record that somebody has edited
		}
		asked := mounts[v.Mount]
		image := &cri.ImageSpec{Image: asked.GetImage().GetImage(), Annotations: asked.GetImage().GetAnnotations(),
			UserSpecifiedImage: asked.GetImage().GetUserSpecifiedImage(), RuntimeHandler: asked.GetImage().GetRuntimeHandler(), ImageRef: v.ImageID}
		mounts[v.Mount] = &cri.Mount{ContainerPath: asked.GetContainerPath(), HostPath: asked.GetHostPath(), Readonly: asked.GetReadonly(),
			SelinuxRelabel: asked.GetSelinuxRelabel(), Propagation: asked.GetPropagation(), UidMappings: asked.GetUidMappings(), GidMappings: asked.GetGidMappings(),
			RecursiveReadOnly: asked.GetRecursiveReadOnly(), Image: image, ImageSubPath: asked.GetImageSubPath(), MountOptions: asked.GetMountOptions()}
	}
	return mounts
}

// releaseVolumes takes what was mounted for a container's mounts and devices away from the host. The container has mounted it for
// itself when it has been created. On the host it would be in the way: a directory on which something is mounted in a copy of the
// host's root cannot be removed, and each mount namespace begins as a copy of all mounts.
func (m *Manager) releaseVolumes(id string) error {
	errs := []error{mount.Detach(m.devices(id))}
	entries, err := os.ReadDir(m.volumes(id))
	if err != nil && !os.IsNotExist(err) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		errs = append(errs, mount.Detach(filepath.Join(m.volumes(id), e.Name())))
	}
	return errors.Join(errs...)
}

func (m *Manager) volumes(id string) string { return filepath.Join(m.Bundle(id), "volumes") }
func (m *Manager) devices(id string) string { return filepath.Join(m.Bundle(id), "devices") }

// volume is where the runtime keeps what it has mounted for the mount of that index.
func (m *Manager) volume(id string, index int) string {
	return filepath.Join(m.volumes(id), strconv.Itoa(index))
}

// mountImage mounts an image's layers for one of a container's mounts, read-only, and returns the path of what is to be seen in
// the container.
func (m *Manager) mountImage(ctx context.Context, rec *Record, sb *sandbox.Record, v ImageVolume) (string, error) {
	mt := rec.Config().GetMounts()[v.Mount]
	layers, err := m.layers(ctx, v.ImageID)
	if err != nil {
		return "", err
	}
	at := m.volume(rec.ID, v.Mount)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", err
	}
	if rec.SELinux.Mount != "" && len(layers) < 2 { // a label is for an overlay, and that takes two layers
		empty := filepath.Join(m.Bundle(rec.ID), "empty")
		if err := os.MkdirAll(empty, 0o755); err != nil {
			return "", err
		}
		layers = append(slices.Clone(layers), empty)
	}
	if err := m.overlay(overlay{id: rec.ID, target: at, lower: layers, label: rec.SELinux.Mount}, sb, mt); err != nil {
		return "", err
	}
	source, err := within(at, mt.GetImageSubPath())
	if err != nil {
		return "", fmt.Errorf("image_sub_path %q of image %s: %w", mt.GetImageSubPath(), mt.GetImage().GetImage(), err)
	}
	return source, nil
}

// within finds a directory or a file in a root file system that nobody can change, and returns its path free of symbolic links.
// Links are followed as a process would that has it for its root, so that none leads out.
func within(root, path string) (string, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("root file system %s: %w", root, err)
	}
	defer unix.Close(dir)
	fd, err := openIn(dir, "./"+path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "", fmt.Errorf("there is no such path in it: %w", errdefs.ErrInvalidArgument)
	case err != nil:
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return "", fmt.Errorf("it is neither a directory nor a regular file: %w", errdefs.ErrInvalidArgument)
	}
	top, terr := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	found, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err := errors.Join(terr, err); err != nil {
		return "", err
	}
	if found != top && !strings.HasPrefix(found, top+"/") {
		return "", fmt.Errorf("it is at %s, outside of %s: %w", found, top, errdefs.ErrInternal)
	}
	return found, nil
}
