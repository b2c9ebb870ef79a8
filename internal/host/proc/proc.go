// Package proc names processes safely: start times, the boot id, pidfds, and waiting by pid.
//
// A pid alone is a number that the kernel hands out again. A process is therefore identified by boot id, pid and start
// time, and pinned by a pidfd for as long as somebody acts on it. Nothing here waits for "any child and take it": a
// child is looked at first (WNOWAIT), and reaped by its own pid.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BootID returns the kernel's identifier of this boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Stat is what /proc/PID/stat tells of a process.
type Stat struct {
	Comm  string
	State byte // 'R', 'S', 'Z' (a zombie) ... as proc(5) has them
	PPID  int
	// Session is the pid of the session's leader, which may have ended.
	Session int
	// Flags are the kernel's PF_ flags.
	Flags uint64
	// StartTime is in clock ticks since the boot.
	StartTime uint64
}

// pfForkNoExec is PF_FORKNOEXEC of the kernel's sched.h: the process was forked and has not executed a program since.
const pfForkNoExec = 0x40

// Executed reports whether the process has executed a program since it was forked. It holds for zombies too. No program
// can make itself look as if it had not.
func (s Stat) Executed() bool { return s.Flags&pfForkNoExec == 0 }

// Dead reports whether the process has ended, reaped or not.
func (s Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' || s.State == 'x' }

// ReadStat reads /proc/PID/stat. The error is os.ErrNotExist when there is no such process.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, unix.ESRCH) { // it ended between open and read
		err = fmt.Errorf("process %d: %w", pid, os.ErrNotExist)
	}
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return Stat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return s, nil
}

func parseStat(b []byte) (Stat, error) {
	// The command's name is in parentheses and may hold anything, parentheses and newlines too: the last one counts.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("no command name in %q", b)
	}
	f := strings.Fields(string(b[end+1:]))
	const fields = 20 // up to starttime, which is the 22nd field of all
	if len(f) < fields || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("%d fields after the command name, want at least %d", len(f), fields)
	}
	s := Stat{Comm: string(b[open+1 : end]), State: f[0][0]}
	var err error
	if s.PPID, err = strconv.Atoi(f[1]); err != nil {
		return Stat{}, fmt.Errorf("parent's pid: %w", err)
	}
	if s.Session, err = strconv.Atoi(f[3]); err != nil {
		return Stat{}, fmt.Errorf("session: %w", err)
	}
	if s.Flags, err = strconv.ParseUint(f[6], 10, 64); err != nil {
		return Stat{}, fmt.Errorf("flags: %w", err)
	}
	if s.StartTime, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return Stat{}, fmt.Errorf("start time: %w", err)
	}
	return s, nil
}

// ThreadStates returns the states of a process's threads, a letter each, as Stat.State has them. The error is os.ErrNotExist when there is
// no such process.
func ThreadStates(pid int) ([]byte, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var states []byte
	for _, task := range tasks {
		b, err := os.ReadFile(dir + "/" + task.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		s, err := parseStat(b)
		if err != nil {
			return nil, fmt.Errorf("%s/%s/stat: %w", dir, task.Name(), err)
		}
		states = append(states, s.State)
	}
	return states, nil
}

// Alive reports whether the process with this pid and start time still runs.
func Alive(pid int, startTime uint64) bool {
	s, err := ReadStat(pid)
	return err == nil && s.StartTime == startTime && !s.Dead()
}

// SetSubreaper makes this process the one to which orphaned descendants are given.
func SetSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_CHILD_SUBREAPER): %w", err)
	}
	return nil
}

// Hide keeps the memory of this process, which may hold secrets, from all but those who have CAP_SYS_PTRACE, and out of core files
// (PR_SET_DUMPABLE). A program that is executed is not hidden any more.
func Hide() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
