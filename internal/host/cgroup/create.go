package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Create makes the cgroup in every hierarchy, with its missing parents, ready to hold processes. It is idempotent;
// created tells whether the cgroup was missing in any hierarchy. A Create that fails removes what it made.
//
// On v2 the controllers are enabled in the parents, not in the cgroup itself: one that enables controllers for those
// below it cannot hold processes. So a cgroup is for processes, or for cgroups below it, which Create then makes so; a parent that
// does hold processes is FailedPrecondition.
func (h *Host) Create(path string) (created bool, err error) {
	if err := check(path); err != nil {
		return false, err
	}
	var made []string
	for _, t := range h.hierarchies {
		dirs, err := h.createIn(t, path)
		made = append(made, dirs...)
		if err != nil {
			for _, dir := range slices.Backward(made) {
				if rerr := ignoreMissing(unix.Rmdir(dir)); !errors.Is(rerr, unix.EBUSY) { // EBUSY: it is somebody's parent by now
					err = errors.Join(err, rerr)
				}
			}
			return false, fmt.Errorf("create cgroup %s: %w", path, err)
		}
		created = created || len(dirs) > 0
	}
	return created, nil
}

// createIn makes the cgroup in one hierarchy and returns the directories that it made, parents first.
func (h *Host) createIn(t hierarchy, path string) (made []string, err error) {
	if h.mode != V2 && os.Mkdir(t.dir(path), 0o755) == nil { // as mostly, the parent is there
		made = []string{t.dir(path)}
		if !slices.Contains(t.controllers, "cpuset") {
			return made, nil
		}
		if done, err := takeCPUSet(filepath.Dir(t.dir(path)), t.dir(path)); done || err != nil {
			return made, err
		}
	}
	dir := t.mountpoint
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if h.mode == V2 {
			if err := enableControllers(dir); err != nil {
				return made, err
			}
		}
		parent := dir
		dir = filepath.Join(dir, part)
		switch err := os.Mkdir(dir, 0o755); {
		case err == nil:
			made = append(made, dir)
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
		if slices.Contains(t.controllers, "cpuset") {
			if err := inheritCPUSet(parent, dir); err != nil {
				return made, err
			}
			if slices.Contains(made, dir) {
				if err := write(dir, cloneChildren, "1"); err != nil {
					return made, err
				}
			}
		}
	}
	return made, nil
}

// cloneChildren is the file of a v1 cgroup that makes the kernel give a new cpuset below it what it has itself.
const cloneChildren = "cgroup.clone_children"

// takeCPUSet gives a new v1 cpuset its parent's processors and memory nodes, if it has none: then it lets no process in. done is false if
// the parent has none itself yet.
//
// Cgroups below it get them from the kernel, without a write, at which it would look at all cpusets of the host.
func takeCPUSet(parent, dir string) (done bool, err error) {
	if own, err := readWords(filepath.Join(dir, "cpuset.cpus")); err != nil || len(own) > 0 {
		mems, merr := readWords(filepath.Join(dir, "cpuset.mems"))
		if err = errors.Join(err, merr); err != nil || len(mems) > 0 {
			return true, err
		}
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		theirs, err := readWords(filepath.Join(parent, file))
		if err != nil || len(theirs) == 0 {
			return false, err
		}
		if err := write(dir, file, strings.Join(theirs, " ")); err != nil {
			return false, err
		}
	}
	return true, write(dir, cloneChildren, "1")
}

// inheritCPUSet copies a v1 parent's processors and memory nodes: a new cpuset has none, and lets no process in.
func inheritCPUSet(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := readWords(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if len(own) > 0 {
			continue
		}
		theirs, err := readWords(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := write(dir, file, strings.Join(theirs, " ")); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers enables all controllers that a v2 cgroup has for those below it.
func enableControllers(dir string) error {
	available, err := readWords(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	enabled, err := readWords(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range available {
		if !slices.Contains(enabled, name) {
			missing = append(missing, "+"+name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err = write(dir, "cgroup.subtree_control", strings.Join(missing, " "))
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP) {
		// Those controllers that work on threads could be enabled all the same, but then the cgroup were "threaded", and no
		// container can live below such a one.
		return fmt.Errorf("%s holds processes or is threaded, so that no cgroup with controllers can be made in it: move them, or choose another parent: %w",
			dir, errdefs.ErrFailedPrecondition)
	}
	if err == nil {
		return nil
	}
	// One that cannot be enabled (cpu, while realtime processes run) shall not keep the others off; a limit that needs it
	// fails by name when it is set.
	for _, name := range missing {
		_ = write(dir, "cgroup.subtree_control", name)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
