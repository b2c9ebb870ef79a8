//go:build cgo

package spawn

/*
#include <stdlib.h>
#include "stub.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// Spawner starts processes. Methods are safe for concurrent use.
type Spawner struct {
	exe     int // this program
	proc    int // the host's /proc
	empty   int // the empty mount namespace
	host    hostHierarchies
	filters filters
}

// New prepares what all starts have in common. scratch is a directory that exists; nothing is left in it. An error means that this kernel
// cannot do what is needed.
func New(scratch string) (_ *Spawner, err error) {
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/self/exe", Err: err}
	}
	s := &Spawner{exe: exe, proc: -1}
	defer func() {
		if err != nil {
			unix.Close(exe)
			unix.Close(s.proc)
		}
	}()
	if s.proc, err = unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc", Err: err}
	}
	if s.host, err = findHierarchies(); err != nil {
		return nil, err
	}
	s.empty, err = newEmpty(scratch)
	return s, err
}

// ProgramError says that the program cannot be executed: there is no process, and all else was well.
type ProgramError struct{ Text string }

func (e *ProgramError) Error() string { return e.Text }

// Stdio are the process's ends of its streams; nil is /dev/null, as the container has it. They stay the caller's.
type Stdio struct{ In, Out, Err *os.File }

// Child is a process that waits at its gate, which the caller opens by writing a byte to it.
type Child struct {
	PID int
	// PIDFD is the caller's, as all that follows.
	PIDFD int
	// Status tells what becomes of it; see Await.
	Status *os.File
	// PTY is the master of the process's terminal, when it has one; else -1.
	PTY int
}

// Start is a container's first process.
type Start struct {
	ID      string
	Config  *configs.Config
	Process *libcontainer.Process
	Stdio   Stdio
	// Terminal gives the process a terminal instead of Stdio.
	Terminal bool
	// Cgroups are the container's cgroup directories, which exist, as its cgroup manager names them.
	Cgroups map[string]string
	// Gate is the descriptor that the process waits at.
	Gate *os.File
}

// Start makes a container's namespaces and mounts, and a process in it that waits at the gate before it executes the program. What has to
// be done to the process from outside (limits, its score) can be done until then.
func (s *Spawner) Start(r Start) (*Child, error) {
	filter, err := s.filters.get(r.Config.Seccomp)
	if err != nil {
		return nil, err
	}
	trees, err := s.host.of(r.Cgroups)
	if err != nil {
		return nil, err
	}
	p := planFor(r.Config, r.Process, filter)
	p.flags |= flagTell
	p.keyring, p.keyKeep, p.keyNew = "_ses."+r.ID, 0xffffffff, keySearch
	if r.Config.NoNewKeyring {
		p.keyring = ""
	}
	p.readonly, p.masked = r.Config.ReadonlyPaths, r.Config.MaskPaths
	if r.Config.Readonlyfs {
		p.flags |= flagReadonlyRoot
	}
	if r.Config.Namespaces.Contains(configs.NEWCGROUP) && r.Config.Namespaces.PathOf(configs.NEWCGROUP) == "" {
		p.flags |= flagCgroupNS
	}
	member, err := openMembership(r.Cgroups)
	if err != nil {
		return nil, err
	}
	defer member.close()
	c := &container{config: r.Config, cgroups: trees, plan: p}
	var child *Child
	err = onThread(func() error {
		if err := c.enter(s); err != nil {
			return err
		}
		b := birth{plan: p, process: r.Process, stdio: r.Stdio, terminal: r.Terminal, member: member, gate: r.Gate}
		defer b.close()
		if err := b.prepare(); err != nil {
			return err
		}
		if r.Terminal {
			if err := b.mountConsole(); err != nil {
				return err
			}
		}
		if err := makeCwd(r.Process.Cwd); err != nil {
			return err
		}
		child, err = b.spawn(s)
		return err
	})
	return child, err
}

// keySearch lets a process of the same user find the session keyring (KEY_USR_SEARCH): the container's further processes.
const keySearch = 0x80000

// Kept is what further processes need of a container's configuration. It is small, and shares its filter with others.
type Kept struct {
	config *configs.Config
	filter *filter
}

// Keep returns what further processes in a container need.
func (s *Spawner) Keep(c *configs.Config) (*Kept, error) {
	filter, err := s.filters.get(c.Seccomp)
	if err != nil {
		return nil, err
	}
	return &Kept{filter: filter, config: &configs.Config{Umask: c.Umask, Capabilities: c.Capabilities, NoNewPrivileges: c.NoNewPrivileges,
		NoNewKeyring: c.NoNewKeyring, ProcessLabel: c.ProcessLabel, AppArmorProfile: c.AppArmorProfile, Rlimits: c.Rlimits, OomScoreAdj: c.OomScoreAdj}}, nil
}

// Config is the part of the container's configuration that is kept.
func (k *Kept) Config() *configs.Config { return k.config }

// Exec is a further process in a container.
type Exec struct {
	ID      string
	Kept    *Kept
	Process *libcontainer.Process
	Stdio   Stdio
	// Terminal gives the process a terminal instead of Stdio.
	Terminal bool
	Cgroups  map[string]string
	// InitPID and InitFD are the container's first process, whose namespaces the process joins.
	InitPID, InitFD int
	Gate            *os.File
}

// Exec makes a process in a container that waits at the gate before it executes the program.
func (s *Spawner) Exec(r Exec) (*Child, error) {
	p := planFor(r.Kept.config, r.Process, r.Kept.filter)
	if !r.Kept.config.NoNewKeyring {
		p.keyring = "_ses." + r.ID
	}
	member, err := openMembership(r.Cgroups)
	if err != nil {
		return nil, err
	}
	defer member.close()
	var child *Child
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Setns(r.InitFD, execNamespaces); err != nil {
			return fmt.Errorf("join the container's namespaces (process %d): %w", r.InitPID, err)
		}
		b := birth{plan: p, process: r.Process, stdio: r.Stdio, terminal: r.Terminal, member: member, gate: r.Gate, cgroupNS: r.InitFD}
		defer b.close()
		if err := b.prepare(); err != nil {
			return err
		}
		child, err = b.spawn(s)
		return err
	})
	if errors.Is(err, unix.EBUSY) && member.into >= 0 {
		// The container has divided its cgroup, and processes can only be in its parts: that of its first process will do.
		return s.execBeside(r)
	}
	return child, err
}

// execNamespaces are those that the child is born in; the cgroup namespace it joins itself.
const execNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID

// execBeside is Exec into the cgroup of the container's first process, on version 2.
func (s *Spawner) execBeside(r Exec) (*Child, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", r.InitPID))
	if err != nil {
		return nil, err
	}
	own, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), "0::")
	if !ok {
		return nil, fmt.Errorf("cgroup of process %d: %q", r.InitPID, raw)
	}
	dir := "/sys/fs/cgroup" + own
	if dir == r.Cgroups[""] || !strings.HasPrefix(dir, r.Cgroups[""]+"/") {
		return nil, fmt.Errorf("cgroup %s of process %d is not below the container's %s: %w", dir, r.InitPID, r.Cgroups[""], unix.EBUSY)
	}
	r.Cgroups = map[string]string{"": dir}
	return s.Exec(r)
}
