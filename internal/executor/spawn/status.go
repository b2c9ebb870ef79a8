//go:build cgo

package spawn

/*
#include "plan.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/pairs"
)

// ErrEnded says that the process has ended without a word: it was killed.
var ErrEnded = errors.New("the process has ended before it executed its program")

// message is what a start process says.
type message struct {
	kind byte
	text string // why, of the two that tell a failure
	pid  int    // the kernel's word of who says it
	fd   int    // the terminal's master, or the pidfd of BORN; -1: none
	born C.struct_born
}

// failure is what a message tells, if it tells one.
func (m message) failure() error {
	switch m.kind {
	case C.STATUS_BROKEN:
		return errors.New(m.text)
	case C.STATUS_ERROR:
		return &ProgramError{m.text}
	}
	return fmt.Errorf("the process says %q, which means nothing here", m.kind)
}

// AwaitExecution returns when the process, whose gate is open, has executed its program, or has ended without: which of both, only the
// process tells. A ProgramError says that the program cannot be executed.
func AwaitExecution(ctx context.Context, status *os.File) error {
	m, err := receive(ctx, status)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	m.drop()
	return m.failure()
}

// drop closes a descriptor that nobody wants.
func (m message) drop() {
	if m.fd >= 0 {
		unix.Close(m.fd)
	}
}

// statusPair makes the socket of the status. Ours tells who sends, and does not block, so that it can be waited for with others.
func statusPair() (ours *os.File, theirs int, err error) {
	fd, theirs, err := pairs.Descriptors(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, -1, err
	}
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1), unix.SetNonblock(fd, true)); err != nil {
		unix.Close(fd)
		unix.Close(theirs)
		return nil, -1, err
	}
	return os.NewFile(uintptr(fd), "status"), theirs, nil
}

// receive takes one message. It waits no longer than ctx lasts.
func receive(ctx context.Context, status *os.File) (m message, err error) {
	stop := context.AfterFunc(ctx, func() { status.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	rc, err := status.SyscallConn()
	if err != nil {
		return m, err
	}
	buf, oob := make([]byte, 4608), make([]byte, unix.CmsgSpace(4)+unix.CmsgSpace(unix.SizeofUcred))
	var n, oobn int
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		n, oobn, _, _, rerr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(rerr, unix.EAGAIN) && !errors.Is(rerr, unix.EINTR)
	})
	if cerr := ctx.Err(); cerr != nil && err != nil {
		return m, cerr
	}
	if err := errors.Join(err, rerr); err != nil {
		return m, err
	}
	return parse(buf[:n], oob[:oobn])
}

func parse(buf, oob []byte) (m message, err error) {
	m.fd = -1
	control, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return m, err
	}
	for _, c := range control {
		if fds, err := unix.ParseUnixRights(&c); err == nil && len(fds) == 1 {
			m.fd = fds[0]
		}
		if cred, err := unix.ParseUnixCredentials(&c); err == nil {
			m.pid = int(cred.Pid)
		}
	}
	if len(buf) == 0 {
		return m, io.EOF
	}
	m.kind, m.text = buf[0], string(buf[1:])
	if m.kind == C.STATUS_BORN {
		if len(buf) != int(unsafe.Sizeof(m.born)) {
			m.drop()
			return m, fmt.Errorf("the zygote says %d bytes, want %d", len(buf), int(unsafe.Sizeof(m.born)))
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&m.born)), len(buf)), buf)
	}
	return m, nil
}
