package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// FD is a pidfd: it pins one process, whatever becomes of its pid. All methods are safe for concurrent use, except that
// only one Wait may run at a time.
type FD struct {
	f   *os.File
	raw int
	pid int
}

// OpenFD opens a pidfd of the process. The caller knows that the pid is still the process that it means: it is an
// unreaped child, or its start time is checked afterwards.
func OpenFD(pid int) (*FD, error) {
	raw, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) // non-blocking: so that Go's poller waits for it, not a thread
	if err != nil {
		return nil, fmt.Errorf("pidfd_open(%d): %w", pid, err)
	}
	return FDFromRaw(raw, pid), nil
}

// FDFromRaw takes over a pidfd that was received from another process.
func FDFromRaw(raw, pid int) *FD {
	unix.SetNonblock(raw, true) // it fails only on kernels before 5.10, where Wait then blocks a thread
	return &FD{f: os.NewFile(uintptr(raw), fmt.Sprintf("pidfd:%d", pid)), raw: raw, pid: pid}
}

// PID returns the process's pid, as it was when the pidfd was opened.
func (p *FD) PID() int { return p.pid }

// Close lets go of the process.
func (p *FD) Close() error { return p.f.Close() }

// control runs f on the descriptor, which stays open meanwhile.
func (p *FD) control(f func(fd int) error) error {
	rc, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := rc.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// Dup returns a duplicate of the descriptor, which the caller closes.
func (p *FD) Dup() (raw int, err error) {
	err = p.control(func(fd int) error {
		raw, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		return err
	})
	return raw, err
}

// Signal sends the signal. A process that has ended is no error.
func (p *FD) Signal(sig unix.Signal) error {
	err := p.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), p.pid, err)
	}
	return nil
}

// Wait returns when the process has ended, or with the context's error. It neither reaps nor needs a child.
func (p *FD) Wait(ctx context.Context) error {
	if err := p.f.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	rc, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var perr error
	err = rc.Read(func(fd uintptr) bool {
		var ended bool
		ended, perr = readable(int(fd))
		return ended || perr != nil
	})
	if cerr := ctx.Err(); cerr != nil {
		return cerr
	}
	return errors.Join(err, perr)
}

// Ended reports whether the process has ended.
func (p *FD) Ended() bool {
	var ended bool
	_ = p.control(func(fd int) (err error) { ended, err = readable(fd); return err })
	return ended
}

func readable(fd int) (bool, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n == 1, err
		}
	}
}

// Peek tells how a child has ended, and leaves it a zombie; ok is false while it runs. The error is ErrNotChild when it
// is somebody else's child, or when it has been reaped.
func (p *FD) Peek() (st Status, ok bool, err error) {
	cerr := p.control(func(fd int) error {
		st, ok, err = waitid(unix.P_PIDFD, fd, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		return nil
	})
	return st, ok, errors.Join(err, cerr)
}

// Reap takes the zombie child away.
func (p *FD) Reap() error {
	return p.control(func(fd int) error {
		_, _, err := waitid(unix.P_PIDFD, fd, unix.WEXITED|unix.WNOHANG)
		return err
	})
}

// ExitInfo asks the kernel how a process ended that somebody else has reaped. ok is false where the kernel does not
// know (before 6.15, or a pidfd that was opened after the reap).
func (p *FD) ExitInfo() (st Status, ok bool) {
	_ = p.control(func(fd int) error {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if err := unix.IoctlPidfdInfo(fd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
			return nil
		}
		ws := unix.WaitStatus(info.Exit_code)
		st, ok = Status{PID: p.pid, Code: ws.ExitStatus()}, true
		if ws.Signaled() {
			st.Code = 128 + int(ws.Signal())
		}
		return nil
	})
	return st, ok
}
