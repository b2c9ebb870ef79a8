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
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// birth lets a child be born on a thread that is where the child is to be. Its methods run on that thread.
type birth struct {
	plan     *plan
	process  *libcontainer.Process
	stdio    Stdio
	terminal bool
	member   membership
	gate     *os.File
	// cgroupNS is a pidfd of a process whose cgroup namespace the child joins, once it is in its cgroup; 0: none.
	cgroupNS int

	fds  [3]int // of the child's stdio
	pty  int    // the master; -1: none
	mine []int  // to close
}

// prepare opens what is seen from inside only: the terminal, /dev/null, the program, the user's home.
func (b *birth) prepare() error {
	b.pty = -1
	if b.terminal {
		if err := b.openTerminal(); err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
	} else if err := b.openStdio(); err != nil {
		return err
	}
	b.ownStdio()
	env, err := environment(b.process.Env, b.plan.uid)
	if err != nil {
		return &ProgramError{err.Error()}
	}
	b.plan.env = env
	b.plan.path, err = lookPath(b.process.Args[0], env)
	return err
}

func (b *birth) openStdio() error {
	for i, f := range []*os.File{b.stdio.In, b.stdio.Out, b.stdio.Err} {
		if f != nil {
			b.fds[i] = int(f.Fd())
			continue
		}
		null, err := openNull()
		if err != nil {
			return err
		}
		b.fds[i] = null
		b.mine = append(b.mine, null)
	}
	return nil
}

// openTerminal makes a pty of the container's own devpts. The container may have put anything there: what is opened is checked, and
// the other end is taken from it without a path.
func (b *birth) openTerminal() error {
	master, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/pts/ptmx", Err: err}
	}
	b.pty = master
	var st unix.Statfs_t
	if err := unix.Fstatfs(master, &st); err != nil {
		return err
	}
	var node unix.Stat_t
	if err := unix.Fstat(master, &node); err != nil {
		return err
	}
	if st.Type != unix.DEVPTS_SUPER_MAGIC || node.Rdev != unix.Mkdev(5, 2) {
		return errors.New("/dev/pts/ptmx of the container is not that of a devpts")
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fmt.Errorf("open its other end: %w", errno)
	}
	slave := int(peer)
	b.mine = append(b.mine, slave)
	b.fds = [3]int{slave, slave, slave}
	b.plan.flags |= flagTerminal
	if w, h := b.process.ConsoleWidth, b.process.ConsoleHeight; w != 0 && h != 0 {
		if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Col: w, Row: h}); err != nil {
			return fmt.Errorf("window size: %w", err)
		}
	}
	return nil
}

// mountConsole shows the terminal as /dev/console.
func (b *birth) mountConsole() error {
	number, err := unix.IoctlGetInt(b.pty, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	tree, err := clone(unix.AT_FDCWD, fmt.Sprintf("/dev/pts/%d", number), false)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer unix.Close(tree)
	file, err := unix.Open("/dev/console", unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err == nil {
		unix.Close(file)
		file, err = unix.Open("/dev/console", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return fmt.Errorf("/dev/console: %w", err)
	}
	defer unix.Close(file)
	if err := attach(tree, file); err != nil {
		return fmt.Errorf("/dev/console: %w", err)
	}
	return nil
}

// ownStdio gives the streams to the user that the process becomes, so that it can open them again by /dev/stdout. Where that cannot be
// (a read-only file system) it goes without.
func (b *birth) ownStdio() {
	for _, fd := range b.fds {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Uid != b.plan.uid && !isNull(&st) {
			_ = unix.Fchown(fd, int(b.plan.uid), -1)
		}
	}
}

// makeCwd makes the working directory, from inside.
func makeCwd(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil && dir != "" {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// environment removes doubles, of which the last counts, and adds HOME.
func environment(env []string, uid uint32) ([]string, error) {
	last := map[string]int{}
	for i, kv := range env {
		key, _, ok := strings.Cut(kv, "=")
		if !ok || key == "" || strings.IndexByte(kv, 0) >= 0 {
			return nil, fmt.Errorf("environment: %q is not NAME=VALUE", kv)
		}
		last[key] = i
	}
	out := make([]string, 0, len(env)+1)
	home := false
	for i, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		if last[key] != i || key == "HOME" && value == "" {
			continue
		}
		home = home || key == "HOME"
		out = append(out, kv)
	}
	if !home {
		out = append(out, "HOME="+homeOf(uid))
	}
	return out, nil
}

// lookPath finds the program as a shell would, seen from inside.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if path.IsAbs(name) { // else it counts from the working directory, to which the child changes
			if err := executable(name); err != nil {
				return "", &ProgramError{fmt.Sprintf("exec: %q: %v", name, err)}
			}
		}
		return name, nil
	}
	search := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	for dir := range strings.SplitSeq(search, ":") {
		if !path.IsAbs(dir) {
			continue // a program of the working directory is not what anybody means who gives no path
		}
		if full := path.Join(dir, name); executable(full) == nil {
			return full, nil
		}
	}
	return "", &ProgramError{fmt.Sprintf("exec: %q: executable file not found in $PATH", name)}
}

func executable(name string) error {
	st, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return unix.EISDIR
	case st.Mode().Perm()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}

// spawn lets the child be born.
func (b *birth) spawn(s *Spawner) (*Child, error) {
	b.plan.cgroups = len(b.member.tasks)
	if b.cgroupNS != 0 {
		b.plan.flags |= flagJoinCgroupNS
	}
	plan, err := b.plan.file()
	if err != nil {
		return nil, err
	}
	b.mine = append(b.mine, plan)
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	b.mine = append(b.mine, theirs)
	gate := int(b.gate.Fd())
	fds := []C.int{C.int(b.fds[0]), C.int(b.fds[1]), C.int(b.fds[2]), C.int(plan), C.int(theirs), C.int(gate)}
	for _, fd := range b.member.tasks {
		fds = append(fds, C.int(fd))
	}
	if b.cgroupNS != 0 {
		fds = append(fds, C.int(b.cgroupNS))
	}
	if b.plan.label != "" || b.plan.appArmor != "" {
		fds = append(fds, C.int(s.proc))
	}
	flags := C.uint64_t(0)
	if b.member.into >= 0 {
		flags = unix.CLONE_INTO_CGROUP
	}
	pidfd := C.int(-1)
	pid := C.monopod_spawn(C.int(s.exe), &fds[0], C.int(len(fds)), flags, C.int(b.member.into), &pidfd)
	if pid < 0 {
		unix.Close(ours)
		err := error(unix.Errno(-pid))
		if pidfd >= 0 {
			err = errors.Join(err, reap(int(pidfd)))
		}
		return nil, fmt.Errorf("start a process: %w", err)
	}
	status := os.NewFile(uintptr(ours), "status")
	child := &Child{PID: int(pid), PIDFD: int(pidfd), Status: status, PTY: b.pty}
	b.pty = -1
	return child, nil
}

// reap takes away a child that has ended.
func reap(pidfd int) error {
	defer unix.Close(pidfd)
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// socketPair makes the socket of the status. Ours does not block, so that it can be waited for with others.
func socketPair() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socketpair", err)
	}
	return fds[0], fds[1], unix.SetNonblock(fds[0], true)
}

func (b *birth) close() {
	for _, fd := range b.mine {
		unix.Close(fd)
	}
	if b.pty >= 0 {
		unix.Close(b.pty)
	}
}
