// Package pairs makes pairs of connected unix sockets: one end for this process, the other for one that it starts or that
// asks it. All ends are closed when a program is executed, unless it is given them.
package pairs

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Descriptors are the bare ends of a pair of a type of socket(2): unix.SOCK_STREAM or unix.SOCK_SEQPACKET. Both block.
func Descriptors(kind int) (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socketpair", err)
	}
	return fds[0], fds[1], nil
}

// Packets is a pair that keeps messages apart (SOCK_SEQPACKET). Our end has deadlines; theirs blocks. The name is for errors.
func Packets(name string) (ours, theirs *os.File, err error) {
	a, b, err := Descriptors(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(a, true); err != nil {
		unix.Close(a)
		unix.Close(b)
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(a), name), os.NewFile(uintptr(b), name), nil
}

// Stream is a pair of byte streams. Our end is a connection, which also takes descriptors; theirs blocks. The name is for errors.
func Stream(name string) (ours *net.UnixConn, theirs *os.File, err error) {
	a, b, err := Descriptors(unix.SOCK_STREAM)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(a), name)
	defer f.Close() // FileConn makes a duplicate
	conn, err := net.FileConn(f)
	if err != nil {
		unix.Close(b)
		return nil, nil, err
	}
	return conn.(*net.UnixConn), os.NewFile(uintptr(b), name), nil // AF_UNIX by construction
}
