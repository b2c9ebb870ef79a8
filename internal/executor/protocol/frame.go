package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A frame on the wire is a header of eight bytes and a payload:
//
//	0..3  length of the payload, big endian, at most MaxPayload
//	4     number of file descriptors, at most MaxFDs; they are attached (SCM_RIGHTS) to the header's bytes
//	5..7  zero
//
// The payload is one JSON document, an envelope.
const (
	headerSize = 8
	// MaxPayload bounds a frame's payload, in bytes. It has room for the states of some ten thousand containers.
	MaxPayload = 4 << 20
	// MaxFDs bounds the descriptors of a frame.
	MaxFDs = 8
)

// FD is a file descriptor that came with a frame, or that is to be sent. It stays a bare number, because a descriptor
// that is only kept must not enter Go's poller: it would wake this process for each byte that others read and write.
type FD int

// Close closes the descriptor.
func (fd FD) Close() error { return unix.Close(int(fd)) }

// File hands the descriptor over to an os.File. A non-blocking one is waited for by Go's poller.
func (fd FD) File(name string) *os.File { return os.NewFile(uintptr(fd), name) }

// Pollable is File for which Go's poller waits.
func (fd FD) Pollable(name string) *os.File {
	unix.SetNonblock(int(fd), true) // where it cannot be, reads and writes do not block for long either
	return fd.File(name)
}

// Dup returns a duplicate, which the caller closes.
func (fd FD) Dup() (FD, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	return FD(dup), err
}

// errNoFD says that nothing with a descriptor waits in a socket.
var errNoFD = errors.New("no descriptor was sent")

// ReceiveFD takes a descriptor that waits in a socket. It does not wait for one.
func ReceiveFD(sock FD) (FD, error) {
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	var oobn int
	var err error
	for {
		_, oobn, _, _, err = unix.Recvmsg(int(sock), buf, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return -1, err
	}
	for _, m := range msgs {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return FD(fds[0]), nil
		}
	}
	return -1, errNoFD
}

// CloseFDs closes all of them.
func CloseFDs(fds []FD) {
	for _, fd := range fds {
		fd.Close()
	}
}

// DupFile returns a duplicate of the file's descriptor, which the caller closes. Unlike os.File.Fd it leaves the
// file's blocking mode alone.
func DupFile(f *os.File) (FD, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	dup, derr := -1, error(nil)
	if err := rc.Control(func(fd uintptr) { dup, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return -1, err
	}
	if derr != nil {
		return -1, fmt.Errorf("duplicate the descriptor of %s: %w", f.Name(), derr)
	}
	return FD(dup), nil
}

// errFrame marks what a well-behaved peer never sends: the connection is closed.
var errFrame = errors.New("malformed frame")

// msgReader is the part of *net.UnixConn that reading a frame needs.
type msgReader interface {
	io.Reader
	ReadMsgUnix(b, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error)
}

// readFrame reads one frame. io.EOF means that the connection ended between two frames. The caller closes the
// descriptors.
func readFrame(r msgReader) (payload []byte, fds []FD, err error) {
	defer func() {
		if err != nil {
			CloseFDs(fds)
			fds = nil
		}
	}()
	var header [headerSize]byte
	if fds, err = readHeader(r, header[:]); err != nil {
		return nil, fds, err
	}
	length, nfds, err := parseHeader(header)
	if err != nil {
		return nil, fds, err
	}
	if nfds != len(fds) {
		return nil, fds, fmt.Errorf("%w: %d descriptors came, %d were announced", errFrame, len(fds), nfds)
	}
	// The buffer grows as the bytes come: a header alone must not cost the announced length.
	var buf bytes.Buffer
	if n, err := io.CopyN(&buf, r, int64(length)); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it ends after %d of %d bytes", errFrame, n, length)
		}
		return nil, fds, err
	}
	return buf.Bytes(), fds, nil
}

// readHeader fills the header, and collects the descriptors that are attached to its bytes.
func readHeader(r msgReader, header []byte) (fds []FD, err error) {
	oob := make([]byte, unix.CmsgSpace(MaxFDs*4))
	for got := 0; got < len(header); {
		n, oobn, flags, _, err := r.ReadMsgUnix(header[got:], oob)
		if oobn > 0 {
			more, perr := parseRights(oob[:oobn])
			fds = append(fds, more...)
			if perr != nil {
				return fds, perr
			}
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return fds, fmt.Errorf("%w: more than %d descriptors came at once", errFrame, MaxFDs)
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		if err != nil {
			if got > 0 && errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: it ends inside the header", errFrame)
			}
			return fds, err
		}
		got += n
	}
	return fds, nil
}

func parseRights(oob []byte) (fds []FD, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", errFrame, err)
	}
	for _, m := range msgs {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		raw, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, fmt.Errorf("%w: descriptors: %w", errFrame, err)
		}
		for _, fd := range raw {
			fds = append(fds, FD(fd))
		}
	}
	return fds, nil
}

func parseHeader(h [headerSize]byte) (length, nfds int, err error) {
	length, nfds = int(binary.BigEndian.Uint32(h[:4])), int(h[4])
	if length > MaxPayload {
		return 0, 0, fmt.Errorf("%w: payload of %d bytes, the limit is %d", errFrame, length, MaxPayload)
	}
	if nfds > MaxFDs {
		return 0, 0, fmt.Errorf("%w: %d descriptors, the limit is %d", errFrame, nfds, MaxFDs)
	}
	if h[5] != 0 || h[6] != 0 || h[7] != 0 {
		return 0, 0, fmt.Errorf("%w: the header's last bytes are %x, want zeros", errFrame, h[5:])
	}
	return length, nfds, nil
}

// writeFrame sends one frame. The descriptors stay the caller's.
func writeFrame(c *net.UnixConn, payload []byte, fds []FD) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("message of %d bytes, the limit is %d", len(payload), MaxPayload)
	}
	if len(fds) > MaxFDs {
		return fmt.Errorf("message with %d descriptors, the limit is %d", len(fds), MaxFDs)
	}
	frame := make([]byte, headerSize, headerSize+len(payload))
	binary.BigEndian.PutUint32(frame, uint32(len(payload)))
	frame[4] = byte(len(fds))
	frame = append(frame, payload...)
	var oob []byte
	if len(fds) > 0 {
		raw := make([]int, len(fds))
		for i, fd := range fds {
			raw[i] = int(fd)
		}
		oob = unix.UnixRights(raw...)
	}
	// One sendmsg takes the descriptors with the first byte; on a stream it may leave a part of the rest to us.
	n, _, err := c.WriteMsgUnix(frame, oob, nil)
	if err == nil && n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	return err
}
