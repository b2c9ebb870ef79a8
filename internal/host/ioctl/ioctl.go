// Package ioctl makes calls to devices and file systems whose argument is a struct.
package ioctl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is one such call on an open file. The argument's form is the request's to know.
func Call[T any](fd uintptr, request uint, arg *T) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(unsafe.Pointer(arg)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
