package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// overlay is one to mount for a container.
type overlay struct {
	id          ids.ContainerID
	target      string
	lower       []string
	upper, work string // both empty: read-only
	label       string // the SELinux label of all its files, or empty
}

// overlay mounts layers of an image so that what belongs to root in the image belongs to root in the container. A mount of an image
// may say for itself who that is; otherwise it is the root of the sandbox's user namespace.
func (m *Mounter) overlay(o overlay, sb *sandbox.Record, mt *cri.Mount) error {
	mapped := func(userns *os.File) error {
		scratch := filepath.Join(m.cfg.Folders.Bundle(o.id), "scratch")
		if err := os.Mkdir(scratch, 0o700); err != nil {
			return err
		}
		return errors.Join(mount.OverlayIDMapped(o.target, o.lower, o.upper, o.work, o.label, userns, scratch), os.Remove(scratch))
	}
	switch {
	case len(mt.GetUidMappings()) > 0:
		return ns.WithUser(ns.Mappings{UIDs: idMaps(mt.GetUidMappings()), GIDs: idMaps(mt.GetGidMappings())}, mapped)
	case sb.HasUserNamespace():
		return m.withUserNamespace(sb, mapped)
	}
	return mount.Overlay(o.target, o.lower, o.upper, o.work, o.label)
}

func (m *Mounter) withUserNamespace(sb *sandbox.Record, f func(*os.File) error) error {
	userns, err := os.Open(m.cfg.Sandboxes.Namespace(sb, ns.User))
	if err != nil {
		return fmt.Errorf("the sandbox's user namespace: %w", err)
	}
	defer userns.Close()
	return f(userns)
}

// checkIDMap refuses a source whose owners cannot be translated, which is a matter of its file system, whatever the mapping.
func (m *Mounter) checkIDMap(sb *sandbox.Record, source string) error {
	return m.withUserNamespace(sb, func(userns *os.File) error { return mount.CheckIDMap(source, userns) })
}

func idMaps(maps []*cri.IDMapping) []ns.IDMap {
	var all []ns.IDMap
	for _, m := range maps {
		all = append(all, ns.IDMap{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Length: m.GetLength()})
	}
	return all
}
