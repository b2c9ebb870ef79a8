//go:build cgo

// Package group is a container's cgroups: made, counted, limited, emptied by signals, and removed, with the scope of systemd's that they may be below.
//
// What it does works on both versions, and on a host that has both. It decides nothing about a container, and stores nothing of one.
package group

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // lets the cgroup managers set device rules
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/host/systemd"
)

// Group is a container's cgroups.
type Group struct {
	Dirs  map[string]string // their directories: by controller on v1, under "" on v2
	Scope *systemd.Scope    // the unit of systemd's that they are below; nil: none
}

// procsDir returns the directory whose processes are the container's: on v2 the only one; on v1 that of a controller
// that libcontainer always joins.
func (g Group) procsDir() string {
	for _, controller := range []string{"", "devices", "pids", "freezer", "memory", "cpu", "name=systemd"} {
		if dir := g.Dirs[controller]; dir != "" {
			return dir
		}
	}
	return ""
}

// Processes returns pidfds of all processes in the cgroup and below it. The caller closes them.
func (g Group) Processes() ([]*proc.FD, error) { return pinned(g.procsDir()) }

// pinned is Processes for a directory.
func pinned(dir string) (pids []*proc.FD, err error) {
	if dir == "" {
		return nil, nil
	}
	before, err := cgroups.GetAllPids(dir)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, pid := range before {
		if fd, err := proc.OpenFD(pid); err == nil { // else it has ended
			pids = append(pids, fd)
		}
	}
	// A pid may have been given to a stranger between reading it and pinning it; then it is not in the list now.
	after, err := cgroups.GetAllPids(dir)
	if err != nil && !isGone(err) {
		for _, fd := range pids {
			fd.Close()
		}
		return nil, err
	}
	return slices.DeleteFunc(pids, func(fd *proc.FD) bool {
		if slices.Contains(after, fd.PID()) && !fd.Ended() {
			return false
		}
		fd.Close()
		return true
	}), nil
}

// isGone says that a cgroup was not there, or was removed while it was read, as systemd does with one in which nothing runs any more.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// KillRounds bounds how often Kill looks for processes that were forked meanwhile.
const KillRounds = 20

// Kill sends the signal to every process in the cgroup. After SIGKILL it waits for them to end, and returns when
// none is left.
func (g Group) Kill(ctx context.Context, sig unix.Signal) error {
	dir := g.procsDir()
	if sig == unix.SIGKILL && dir != "" && g.Dirs[""] != "" {
		// v2 does it at once (5.14 and later); what follows finds nobody, or does it one by one.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	}
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	for range KillRounds {
		pids, err := pinned(dir)
		if err != nil {
			return fmt.Errorf("processes of cgroup %s: %w", dir, err)
		}
		if len(pids) == 0 {
			return nil
		}
		var errs []error
		for _, fd := range pids {
			errs = append(errs, fd.Signal(sig))
		}
		for _, fd := range pids {
			if sig == unix.SIGKILL {
				errs = append(errs, awaitKilled(ctx, fd))
			}
			fd.Close()
		}
		if err := errors.Join(errs...); err != nil || sig != unix.SIGKILL {
			return err
		}
	}
	return fmt.Errorf("cgroup %s: processes are forked faster than they are killed; limit its pids", dir)
}

// killWait bounds the wait for killed processes. They end within milliseconds, unless they hang in the kernel (state D), where
// no signal reaches them: then whoever wants them gone has to come again.
const killWait = 20 * time.Second

func awaitKilled(ctx context.Context, fd *proc.FD) error {
	err := fd.Wait(ctx)
	if err == nil || ctx.Err() == nil {
		return err
	}
	state := "?"
	if stat, serr := proc.ReadStat(fd.PID()); serr == nil {
		state = string(stat.State)
	}
	return fmt.Errorf("process %d has been killed and does not end (state %s); it hangs in the kernel: %w", fd.PID(), state, err)
}

// Remove removes the directories, with what the container made below them.
func (g Group) Remove() error {
	if len(g.Dirs) == 0 {
		return nil
	}
	return cgroups.RemovePaths(g.Dirs)
}

// OOMKilled reports whether the kernel has killed a process of the container for want of memory.
func (g Group) OOMKilled() (bool, error) {
	paths := g.countedIn()
	// On a hybrid host the v2 directory is there too, but the memory controller is with v1.
	var files []string
	if dir := paths["memory"]; dir != "" {
		files = append(files, filepath.Join(dir, "memory.oom_control"))
	}
	if dir := paths[""]; dir != "" {
		files = append(files, filepath.Join(dir, "memory.events"))
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil {
			return oomKills(raw) > 0, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// oomKills returns the count behind "oom_kill", the same word in both versions' files.
func oomKills(raw []byte) uint64 {
	for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
		if value, ok := bytes.CutPrefix(s.Bytes(), []byte("oom_kill ")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}
