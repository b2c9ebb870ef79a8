package mount

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Unmount takes away the topmost mount at the target. That nothing is mounted or nothing exists there is no error. A
// busy mount is detached: it is gone for everyone who looks, and ends when its last user does.
func Unmount(target string) error {
	err := unmount(target, 0)
	if errors.Is(err, unix.EBUSY) {
		err = detach(target)
	}
	return err
}

func detach(target string) error { return unmount(target, unix.MNT_DETACH) }

func unmount(target string, flags int) error {
	switch err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW|flags); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil // EINVAL: not a mount point
	default:
		return fmt.Errorf("unmount %s: %w", target, err)
	}
}

// Detach takes away the topmost mount at the target with all that is mounted below it, for everybody who looks; for those who use it,
// or have a copy of it in a mount namespace of their own, it stays. What shares with it stays as well. Nothing mounted
// there is no error.
func Detach(target string) error {
	err := unix.Mount("", target, "", unix.MS_PRIVATE|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the mount at %s private: %w", target, err)
	}
	return detach(target)
}

// Below lists the mount points at or below the directory in this mount namespace, deepest first, a target as often as
// there are mounts stacked on it. Nothing there, or no such directory, is an empty list.
func Below(dir string) ([]string, error) {
	infos, err := below(dir)
	if err != nil {
		return nil, err
	}
	targets := make([]string, len(infos))
	for i, m := range infos {
		targets[i] = m.Mountpoint
	}
	return targets, nil
}

func below(dir string) ([]*mountinfo.Info, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return nil, fmt.Errorf("read the mounts below %s: %w", dir, err)
	}
	slices.SortFunc(infos, func(a, b *mountinfo.Info) int {
		return cmp.Or(cmp.Compare(strings.Count(b.Mountpoint, "/"), strings.Count(a.Mountpoint, "/")), cmp.Compare(a.Mountpoint, b.Mountpoint))
	})
	return infos, nil
}

// UnmountBelow unmounts everything at or below the directory, deepest first. It goes on after an error and returns them
// all. What is mounted elsewhere stays, also when the mounts below the directory share with others, as those of a BindClean do.
func UnmountBelow(dir string) error {
	if done, err := unmountWithin(dir); done {
		return err
	}
	infos, err := below(dir)
	if err != nil {
		return err
	}
	ids := map[int]bool{}
	for _, m := range infos {
		ids[m.ID] = true
	}
	var errs []error
	for _, m := range infos {
		if ids[m.Parent] {
			continue
		}
		// What is unmounted from a mount that shares is unmounted from its peers, too: from the host's own root, say.
		err := unix.Mount("", m.Mountpoint, "", unix.MS_PRIVATE|unix.MS_REC, "")
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // they say that it is gone
			return fmt.Errorf("make the mount at %s private: %w", m.Mountpoint, err)
		}
	}
	for _, m := range infos {
		errs = append(errs, Unmount(m.Mountpoint))
	}
	return errors.Join(errs...)
}

// Propagation is how the mount that holds a path exchanges mounts with other mount namespaces.
type Propagation struct {
	Shared bool // it sends and receives: what a BIDIRECTIONAL mount needs of its source
	Slave  bool // it receives: what a HOST_TO_CONTAINER mount needs of its source, if it is not Shared
}

// PropagationOf tells the propagation of the mount that holds the path, which must exist and be free of symbolic links.
func PropagationOf(path string) (Propagation, error) {
	infos, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return Propagation{}, fmt.Errorf("read the mounts above %s: %w", path, err)
	}
	var holder *mountinfo.Info
	for _, m := range infos {
		// Of mounts stacked on one target the last listed is the one that is seen.
		if holder == nil || len(m.Mountpoint) >= len(holder.Mountpoint) {
			holder = m
		}
	}
	var p Propagation
	if holder != nil {
		for field := range strings.FieldsSeq(holder.Optional) {
			p.Shared = p.Shared || strings.HasPrefix(field, "shared:")
			p.Slave = p.Slave || strings.HasPrefix(field, "master:")
		}
	}
	return p, nil
}
