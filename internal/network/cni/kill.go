package cni

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
)

// killRounds bounds how often the processes are looked through again, for those that were forked meanwhile, or that the kernel
// does not let go; unsureRounds how often for those whose environment cannot be seen: while a process executes another program it
// seems to have none, and some have none.
const (
	killRounds   = 50
	unsureRounds = 4
)

// pfKthread is PF_KTHREAD of the kernel's sched.h: a thread of the kernel's own.
const pfKthread = 0x00200000

// killTree kills a process that is not reaped yet, and its descendants. They are stopped first, so that none is forked, nor any
// reaped and its pid used again, before all are known.
func killTree(pid int) {
	stopped := map[int]bool{pid: true}
	_ = unix.Kill(pid, unix.SIGSTOP)
	for more := true; more; {
		more = false
		for _, p := range processes() {
			st, err := proc.ReadStat(p)
			if err != nil || stopped[p] || !stopped[st.PPID] {
				continue
			}
			_ = unix.Kill(p, unix.SIGSTOP)
			stopped[p], more = true, true
		}
	}
	for p := range stopped {
		_ = unix.Kill(p, unix.SIGKILL)
	}
}

// processes are the ids of all processes.
func processes() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killMarked kills every process whose environment matches. It is how the descendants of a plugin are found that have left their
// parents, and plugins that an earlier monopod has left: a process inherits its environment. One that has replaced its
// environment stays.
func killMarked(match func(env []byte) bool) {
	for round := range killRounds {
		again := false
		for _, pid := range processes() {
			killed, unsure := killOne(pid, match)
			again = again || killed || unsure && round < unsureRounds
		}
		if !again {
			return
		}
	}
}

// killOne kills a process that matches. The pidfd is opened first, so that the one that was looked at is the one that is killed.
// unsure says that its environment could not be seen.
func killOne(pid int, match func(env []byte) bool) (killed, unsure bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false, false
	}
	if len(env) == 0 {
		st, err := proc.ReadStat(pid)
		return false, err == nil && !st.Dead() && st.Flags&pfKthread == 0
	}
	if !match(env) || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return false, false
	}
	// Its end is awaited for a moment, so that it does nothing more when this returns.
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
	return true, false
}

// hasVariable says that an environment, as /proc has it, has the variable with the value ("NAME=VALUE").
func hasVariable(env []byte, kv string) bool {
	return bytes.HasPrefix(env, append([]byte(kv), 0)) || bytes.Contains(env, append(append([]byte{0}, kv...), 0))
}

// killADD kills what an earlier monopod has left running of a sandbox's ADD.
func killADD(sandboxID ids.SandboxID) {
	killMarked(func(env []byte) bool {
		return hasVariable(env, "CNI_CONTAINERID="+string(sandboxID)) && hasVariable(env, "CNI_COMMAND=ADD") &&
			bytes.Contains(append([]byte{0}, env...), []byte("\x00"+callVariable+"="))
	})
}
