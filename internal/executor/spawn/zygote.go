//go:build cgo

package spawn

/*
#include "plan.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/pairs"
)

// zygote is the process that start processes are copies of: this program, executed anew; see zygote.c. It is started when it is needed,
// and again should it have been killed.
type zygote struct {
	files [C.ZYGOTE_END - C.ZYGOTE_EMPTY]*os.File // what it is executed with, behind its socket

	mu   sync.Mutex
	sock int // -1: it does not run
	proc *os.Process
}

// sendPatience bounds how long a request waits for room in the socket: the zygote never waits for anything itself.
const sendPatience = 10 * time.Second

// job is a request for a start process. Descriptors are the caller's; -1 is none.
type job struct {
	plan, status, gate int
	stdio              [3]int
	member             membership
	target             int
	newPIDs            bool
}

// send asks for a start process. What becomes of it comes over the job's status socket.
func (z *zygote) send(j job) error {
	head := C.struct_request{magic: C.REQUEST_MAGIC, ntasks: C.uint32_t(len(j.member.tasks))}
	if len(j.member.tasks) > C.MAX_TASKS {
		return fmt.Errorf("the container is in %d hierarchies of cgroups, at most %d can be joined", len(j.member.tasks), C.MAX_TASKS)
	}
	if j.newPIDs {
		head.newpid = 1
	}
	var fds []int
	for slot, fd := range [C.SLOTS]int{C.SLOT_PLAN: j.plan, C.SLOT_STATUS: j.status, C.SLOT_GATE: j.gate, C.SLOT_IN: j.stdio[0],
		C.SLOT_OUT: j.stdio[1], C.SLOT_ERR: j.stdio[2], C.SLOT_CGROUP: j.member.into, C.SLOT_TARGET: j.target} {
		if fd >= 0 {
			head.has |= 1 << slot
			fds = append(fds, fd)
		}
	}
	rights := unix.UnixRights(append(fds, j.member.tasks...)...)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&head)), int(unsafe.Sizeof(head)))
	z.mu.Lock()
	defer z.mu.Unlock()
	for fresh := false; ; fresh = true {
		if z.sock < 0 {
			if err := z.start(); err != nil {
				return fmt.Errorf("start the zygote: %w", err)
			}
			fresh = true
		}
		err := unix.Sendmsg(z.sock, raw, rights, nil, unix.MSG_NOSIGNAL)
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		z.end()
		if fresh {
			return fmt.Errorf("ask the zygote: %w", err)
		}
	}
}

// start starts the process. It is called with the lock held.
func (z *zygote) start() error {
	sock, fd, err := pairs.Descriptors(unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(fd), "zygote")
	defer theirs.Close()
	timeout := unix.NsecToTimeval(sendPatience.Nanoseconds())
	if err := unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		unix.Close(sock)
		return os.NewSyscallError("setsockopt", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		unix.Close(sock)
		return err
	}
	defer null.Close()
	files := append([]*os.File{null, null, null, theirs}, z.files[:]...)
	z.proc, err = os.StartProcess("/proc/self/exe", []string{C.START_NAME}, &os.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{}})
	if err != nil {
		unix.Close(sock)
		return err
	}
	z.sock = sock
	return nil
}

// end lets the zygote go, which ends with its socket. It is called with the lock held.
func (z *zygote) end() {
	if z.sock < 0 {
		return
	}
	unix.Close(z.sock)
	z.sock = -1
	_ = z.proc.Kill() // it may be stopped
	_, _ = z.proc.Wait()
}

// died notes that a start process was not born because the zygote ended, so that the next one starts another.
func (z *zygote) died() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.end()
}

// close ends the zygote, and closes what it is executed with.
func (z *zygote) close() {
	z.died()
	for _, f := range z.files {
		f.Close()
	}
}
