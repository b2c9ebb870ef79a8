package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/wait"
)

// removeTreeTimeout bounds RemoveTree. A process that has been killed is gone within milliseconds, unless it dumps core or
// hangs in a device.
const removeTreeTimeout = 2 * time.Second

// Processes lists the processes in the cgroup and those below it, sorted.
func (h *Host) Processes(path string) ([]int, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	var all []int
	for _, t := range h.hierarchies {
		pids, err := processesIn(t.dir(path))
		if err != nil {
			return nil, err
		}
		all = append(all, pids...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func processesIn(dir string) (pids []int, err error) {
	err = walk(dir, func(dir string) error {
		words, err := readWords(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // removed meanwhile
			return nil
		}
		for _, w := range words {
			// 0 is a process that this pid namespace does not see.
			if pid, err := strconv.Atoi(w); err == nil && pid != 0 {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

// walk calls f for the cgroup's directory and all below it, deepest first. A missing one is none.
func walk(dir string, f func(dir string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := walk(filepath.Join(dir, e.Name()), f); err != nil {
				return err
			}
		}
	}
	return f(dir)
}

// Remove removes the cgroup from every hierarchy. It is idempotent. A cgroup with processes or with cgroups below it is
// FailedPrecondition, and stays in those hierarchies where it has them.
func (h *Host) Remove(path string) error {
	if err := check(path); err != nil {
		return err
	}
	var errs []error
	for _, t := range h.hierarchies {
		err := ignoreMissing(unix.Rmdir(t.dir(path)))
		if errors.Is(err, unix.EBUSY) {
			pids, _ := processesIn(t.dir(path)) // only to tell more
			err = fmt.Errorf("%s has processes (%s) or cgroups in it: %w", t.dir(path), describe(pids), errdefs.ErrFailedPrecondition)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RemoveTree removes the cgroup and all below it, deepest first. It is idempotent. It waits up to two seconds for
// processes that are dying; those that live on are named in a FailedPrecondition.
func (h *Host) RemoveTree(path string) error {
	if err := check(path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTreeTimeout)
	defer cancel()
	var errs []error
	for _, t := range h.hierarchies {
		errs = append(errs, removeTree(ctx, t.dir(path)))
	}
	return errors.Join(errs...)
}

func removeTree(ctx context.Context, dir string) error {
	pause := time.Millisecond
	for {
		err := walk(dir, func(dir string) error { return ignoreMissing(unix.Rmdir(dir)) })
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		pids, perr := processesIn(dir)
		if perr != nil {
			return perr
		}
		if err := awaitExit(ctx, pids); err != nil || ctx.Err() != nil {
			return fmt.Errorf("cgroup %s still has processes (%s): kill them first: %w", dir, describe(pids), errdefs.ErrFailedPrecondition)
		}
		// No process is left, yet the kernel may count one: its last thread is on its way out of the processor. No event
		// tells the end of that on v1, so look again, ever less often.
		_ = wait.For(ctx, pause) // its end is awaitExit's to tell
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// awaitExit waits until all of the processes have ended.
func awaitExit(ctx context.Context, pids []int) error {
	for _, pid := range pids {
		fd, err := proc.OpenFD(pid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		err = fd.Wait(ctx)
		fd.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// describe names processes for an error message.
func describe(pids []int) string {
	if len(pids) == 0 {
		return "none visible"
	}
	var b strings.Builder
	for i, pid := range pids {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(pids)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // only to tell more
		fmt.Fprintf(&b, "%d %s", pid, strings.TrimSpace(string(comm)))
	}
	return b.String()
}
