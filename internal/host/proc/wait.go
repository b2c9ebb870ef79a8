package proc

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Status is how a process ended.
type Status struct {
	PID int
	// Code is the exit status, or 128 plus the number of the signal that ended the process.
	Code int
}

// ErrNotChild says that a process is not a child of this one, so that it cannot be waited for.
var ErrNotChild = errors.New("not a child of this process")

// siginfoChild is siginfo_t as waitid(2) fills it in, on 64-bit kernels.
type siginfoChild struct {
	_      int32 // signo
	_      int32 // errno
	code   int32
	_      int32
	pid    int32
	_      uint32 // uid
	status int32
}

const cldExited = 1 // CLD_EXITED: status is an exit status; otherwise it is a signal's number

// waitid calls waitid(2); ok is false when nothing has ended yet.
func waitid(idType, id, options int) (st Status, ok bool, err error) {
	var info unix.Siginfo
	for {
		err = unix.Waitid(idType, id, &info, options, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.ECHILD) {
		return Status{}, false, ErrNotChild
	}
	if err != nil {
		return Status{}, false, err
	}
	c := (*siginfoChild)(unsafe.Pointer(&info))
	if c.pid == 0 {
		return Status{}, false, nil
	}
	st = Status{PID: int(c.pid), Code: int(c.status)}
	if c.code != cldExited {
		st.Code = 128 + int(c.status)
	}
	return st, true, nil
}

// PeekAnyChild tells of one child that has ended, and leaves it a zombie; ok is false when there is none. The caller
// reaps it with Reap.
func PeekAnyChild() (st Status, ok bool, err error) {
	st, ok, err = waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	if errors.Is(err, ErrNotChild) {
		return Status{}, false, nil // no children at all
	}
	return st, ok, err
}

// Reap takes the zombie child away.
func Reap(pid int) error {
	_, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG)
	return err
}
