package stream

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// drainBound is how long output is read on after the process has ended: what others, who still have the pipe or the terminal open,
// write later is cut. What is there by then is read to its end, however slow the client is.
const drainBound = 500 * time.Millisecond

// buffers are those of the copies under way.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// drainSoon makes copyOutput of the file end with what is there when the bound is over.
func drainSoon(f *os.File) { _ = f.SetReadDeadline(time.Now().Add(drainBound)) }

// copyOutput copies a process's output to its end. The error is the client's.
func copyOutput(out io.Writer, from *os.File) error {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return copyRest(out, from, buf[:])
		case err != nil: // the end: io.EOF, EIO of a terminal that nobody has open, or closed
			return nil
		}
	}
}

// copyRest copies what is in the pipe or terminal now, and no more.
func copyRest(out io.Writer, from *os.File, buf []byte) error {
	if from.SetReadDeadline(time.Time{}) != nil {
		return nil
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return nil
	}
	left, now := 0, func(f func(fd int)) bool {
		return raw.Read(func(fd uintptr) bool { f(int(fd)); return true }) == nil
	}
	if !now(func(fd int) { left, err = unix.IoctlGetInt(fd, unix.TIOCINQ) }) || err != nil {
		return nil
	}
	for left > 0 {
		n := 0
		if !now(func(fd int) { n, err = unix.Read(fd, buf[:min(left, len(buf))]) }) || err != nil && !errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			return nil
		}
		if n = max(n, 0); n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		left -= n
	}
	return nil
}
