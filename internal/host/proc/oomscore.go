package proc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// scoreRounds bounds how often AdjustOOMScores looks for processes that were forked meanwhile.
const scoreRounds = 10

// AdjustOOMScores sets the oom_score_adj of those of a group's processes that have the score was; others have set their own.
// It looks at the group again until it finds none with the old score, because a process that is forked meanwhile inherits it.
//
// Each process is held by its folder below /proc, and looked for in the group again before it is touched, so that nobody else
// is who has got the number meanwhile. A score that the kernel does not let us set is errdefs.ErrFailedPrecondition.
func AdjustOOMScores(group func() ([]int, error), was, now int) error {
	if was == now {
		return nil
	}
	for range scoreRounds {
		changed, err := adjustOnce(group, was, now)
		if err != nil || !changed {
			return err
		}
	}
	return fmt.Errorf("processes are forked faster than their score can be set: %w", errdefs.ErrUnavailable)
}

func adjustOnce(group func() ([]int, error), was, now int) (changed bool, err error) {
	pids, err := group()
	if err != nil {
		return false, err
	}
	held := map[int]*os.File{}
	defer func() {
		for _, dir := range held {
			dir.Close()
		}
	}()
	for _, pid := range pids {
		if dir, err := os.Open("/proc/" + strconv.Itoa(pid)); err == nil { // else it has ended
			held[pid] = dir
		}
	}
	if pids, err = group(); err != nil {
		return false, err
	}
	for pid, dir := range held {
		if !slices.Contains(pids, pid) {
			continue
		}
		did, err := adjust(dir, was, now)
		if err != nil {
			return changed, fmt.Errorf("process %d: %w", pid, err)
		}
		changed = changed || did
	}
	return changed, nil
}

// adjust changes one process's score if it is the old one. A process that ends meanwhile is no error.
func adjust(dir *os.File, was, now int) (changed bool, err error) {
	gone := func(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) }
	fd, err := unix.Openat(int(dir.Fd()), "oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open oom_score_adj: %w", err)
	}
	f := os.NewFile(uintptr(fd), "oom_score_adj")
	defer f.Close()
	buf := make([]byte, 16)
	n, err := f.ReadAt(buf, 0)
	if gone(err) {
		return false, nil
	}
	score, perr := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if perr != nil {
		return false, errors.Join(err, perr)
	}
	if score != was {
		return false, nil
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(now)), 0)
	switch {
	case gone(err):
		return false, nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return false, fmt.Errorf("set oom_score_adj from %d to %d: this host does not let a score be lowered so far (CAP_SYS_RESOURCE): %w: %w", was, now, err, errdefs.ErrFailedPrecondition)
	case err != nil:
		return false, fmt.Errorf("set oom_score_adj to %d: %w", now, err)
	}
	return true, nil
}
