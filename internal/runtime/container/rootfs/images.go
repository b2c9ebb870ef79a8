package rootfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// volume is where the runtime keeps what it has mounted for the mount of that index.
func (m *Mounter) volume(id ids.ContainerID, index int) string {
	return filepath.Join(m.cfg.Folders.Volumes(id), strconv.Itoa(index))
}

// mountImage mounts an image's layers for one of a container's mounts, read-only, and returns the path of what is to be seen in
// the container.
func (m *Mounter) mountImage(ctx context.Context, rec *container.Record, sb *sandbox.Record, v container.ImageVolume) (string, error) {
	mt := rec.Config().GetMounts()[v.Mount]
	layers, err := m.Layers(ctx, v.ImageID)
	if err != nil {
		return "", err
	}
	at := m.volume(rec.ID, v.Mount)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", err
	}
	if rec.SELinux.Mount != "" && len(layers) < 2 { // a label is for an overlay, and that takes two layers
		empty := filepath.Join(m.cfg.Folders.Bundle(rec.ID), "empty")
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
