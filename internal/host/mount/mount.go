// Package mount mounts and unmounts what the runtime needs: overlays of image layers, tmpfs, bind mounts.
//
// Unmounting is idempotent and never follows a symbolic link. Mounting is not idempotent: a second mount on the same target stacks
// upon the first. No function creates its target.
package mount

import (
	"errors"
	"io/fs"
)

// Overlay mounts an overlay file system. The lower directories are ordered topmost first, as overlayfs orders them; there must be
// at least one. With upper and work both empty the mount is read-only. There is no limit to the number of layers below
// the kernel's 500, however long their paths.
func Overlay(target string, lower []string, upper, work string) error { return errors.New("not yet") }

// TmpfsOptions shape a tmpfs, which is always nosuid and nodev.
type TmpfsOptions struct {
	Size   uint64      // in bytes; 0: the kernel's default, half of the memory
	Mode   fs.FileMode // permissions of its root with the sticky bit; 0: 01777
	NoExec bool
}

// Tmpfs mounts a tmpfs.
func Tmpfs(target string, o TmpfsOptions) error { return errors.New("not yet") }

// BindOptions shape a bind mount.
type BindOptions struct {
	ReadOnly  bool // the mount and everything mounted below it
	Recursive bool // with what is mounted below the source
}

// Bind makes the source visible at the target, with private propagation. Source and target are both directories or both not.
func Bind(source, target string, o BindOptions) error { return errors.New("not yet") }

// Unmount takes away the topmost mount at the target. That nothing is mounted or nothing exists there is no error. A
// busy mount is detached: it is gone for everyone who looks, and ends when its last user does.
func Unmount(target string) error { return errors.New("not yet") }

// Below lists the mount points at or below the directory in this mount namespace, deepest first, a target as often as
// there are mounts stacked on it. Nothing there, or no such directory, is an empty list.
func Below(dir string) ([]string, error) { return nil, errors.New("not yet") }

// UnmountBelow unmounts everything at or below the directory, deepest first. It goes on after an error and returns them all.
func UnmountBelow(dir string) error { return errors.New("not yet") }

// Propagation is how the mount that holds a path exchanges mounts with other mount namespaces.
type Propagation struct {
	Shared bool // it sends and receives: what a BIDIRECTIONAL mount needs of its source
	Slave  bool // it receives: what, as well as Shared, a HOST_TO_CONTAINER mount needs of its source
}

// PropagationOf tells the propagation of the mount that holds the path, which must exist and be free of symbolic links.
func PropagationOf(path string) (Propagation, error) { return Propagation{}, errors.New("not yet") }
