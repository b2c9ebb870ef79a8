// Package held has the quota of a file system hold a pod's volume to its size, where the directory of all pods is on one that has quotas switched on (package quota).
//
// What holds a volume is on record, the link UID/quotas/VOLUME in the directory of all pods, before anything is made: so whoever finds a pod's directory completes or
// undoes what was begun. Which projects there are is asked of the file system each time, so that several who make some get along: a project is somebody's as long as a file is in it, and the
// directory of a volume is there first.
package held

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/quota"
)

// The IDs of volumes' projects: below those of claims (package record of the role storage), above those that people and others' agents choose. They are few because xfs
// keeps a block for some of those that there ever were.
const (
	firstProject = 0x6d000000
	projects     = 1 << 16
)

// held is what is on record of a volume.
type held struct {
	kind    quota.Kind
	project uint32 // of kind quota.Project
}

func dirOf(pod string) string            { return filepath.Join(pod, "quotas") }
func recordOf(pod, volume string) string { return filepath.Join(dirOf(pod), volume) }

// read reads a record; fs.ErrNotExist: there is none.
func read(pod, volume string) (h held, err error) {
	text, err := os.Readlink(recordOf(pod, volume))
	if err != nil {
		return h, err
	}
	kind, id, _ := strings.Cut(text, "/")
	if h.kind = quota.Kind(kind); h.kind == quota.Project {
		n, err := strconv.ParseUint(id, 10, 32)
		if h.project = uint32(n); err != nil || n < firstProject || n >= firstProject+projects {
			return h, fmt.Errorf("the record of a quota in %s is %q, which is none of ours", recordOf(pod, volume), text)
		}
	}
	return h, nil
}

// write puts a volume on record, in the place of what is there.
func write(pod, volume string, h held) error {
	if err := os.Mkdir(dirOf(pod), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	text := string(h.kind)
	if h.kind == quota.Project {
		text += "/" + strconv.FormatUint(uint64(h.project), 10)
	}
	at := recordOf(pod, volume)
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(text, at)
}

// Make makes the directory of a pod's volume, with this mode, which holds so many bytes. false: nothing holds it to that, and there may be no directory yet. A volume that
// is there stays as it is, held or not.
func Make(pod, volume, dir string, mode os.FileMode, size int64) (bool, error) {
	h, err := read(pod, volume)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(dir); err == nil {
			return false, nil // by an agent that had no quotas
		}
		parent := filepath.Dir(dir)
		h.kind = quota.Of(parent)
		if around, err := quota.ProjectOf(parent); err == nil && around != 0 {
			return false, nil // somebody counts there what all pods take
		}
	case err != nil:
		return false, err
	case quota.Of(filepath.Dir(dir)) != h.kind:
		return false, nil // they were switched off since
	}
	switch h.kind {
	case quota.Project:
		err = makeProject(pod, volume, dir, mode, h, size)
	case quota.Group:
		err = makeGroup(pod, volume, dir, mode, size)
	default:
		return false, nil
	}
	// Where the kernel lets this process make no quotas, as in a container of somebody else's, volumes are measured as where there are none.
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, os.Remove(recordOf(pod, volume))
	}
	return err == nil, err
}

func makeGroup(pod, volume, dir string, mode os.FileMode, size int64) error {
	if err := write(pod, volume, held{kind: quota.Group}); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := quota.MakeSubvolume(dir); err != nil {
			return err
		}
		if err := os.Chmod(dir, mode); err != nil {
			return err
		}
	}
	return quota.LimitSubvolume(dir, size)
}

func makeProject(pod, volume, dir string, mode os.FileMode, h held, size int64) error {
	for {
		if h.project == 0 {
			id, err := free(filepath.Dir(dir))
			if err != nil {
				return err
			}
			h.project = id
			if err := write(pod, volume, h); err != nil {
				return err
			}
		}
		alone, err := enter(dir, mode, h.project)
		if err != nil {
			return err
		}
		if alone {
			return quota.LimitProject(dir, h.project, size)
		}
		h.project = 0 // somebody else has chosen it at the same moment
	}
}

// enter makes a directory, of a project. false: others are in it already, and the directory is not.
func enter(dir string, mode os.FileMode, project uint32) (alone bool, err error) {
	if err := os.Mkdir(dir, mode); err == nil {
		err = os.Chmod(dir, mode) // whatever the umask
		if err != nil {
			return false, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if is, err := quota.ProjectOf(dir); err != nil || is == project {
		return is == project, err
	}
	if err := quota.SetProject(dir, project); err != nil {
		return false, err
	}
	// Two who have entered both see two, and go both.
	used, err := quota.ProjectUsed(dir, project)
	if err != nil || used.Inodes == 1 {
		return err == nil, err
	}
	return false, quota.SetProject(dir, 0)
}

// free is the ID of a project that nobody is in, on the file system of a directory.
func free(dir string) (uint32, error) {
	first := rand.Uint32N(projects)
	for n := range uint32(projects) {
		if id := firstProject + (first+n)%projects; quota.ProjectFree(dir, id) {
			return id, nil
		}
	}
	return 0, fmt.Errorf("all %d projects for volumes of pods are taken on the file system of %s (repquota -P says by how many bytes each)", projects, dir)
}

// Release undoes what holds a volume, before its directory goes. Nothing on record is no error. What the volume holds goes with its directory, and on btrfs at once.
func Release(pod, volume, dir string) error {
	h, err := read(pod, volume)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch h.kind {
	case quota.Project:
		// The files are in the project until they are removed; nobody else gets it before.
		if quota.Of(filepath.Dir(dir)) == quota.Project {
			err = quota.LimitProject(filepath.Dir(dir), h.project, 0)
		}
	case quota.Group:
		// What a container has mounted there would go with it.
		var mounted []string
		if mounted, err = mount.At(dir); err == nil && len(mounted) == 0 {
			err = quota.RemoveSubvolume(dir)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Used is what a volume takes by the quota that holds it; false: none does.
func Used(pod, volume, dir string) (used quota.Used, is bool) {
	h, err := read(pod, volume)
	if err != nil {
		return used, false
	}
	switch h.kind {
	case quota.Project:
		used, err = quota.ProjectUsed(dir, h.project)
	case quota.Group:
		used, err = quota.SubvolumeUsed(dir)
	default:
		return used, false
	}
	return used, err == nil
}

// Forget removes the records of a pod. Nothing there is no error.
func Forget(pod string) error { return os.RemoveAll(dirOf(pod)) }
