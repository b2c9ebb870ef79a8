package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Files counts what a process has open, and how much of that are sockets. One that has more than most is
// errdefs.ErrResourceExhausted, one that has ended errdefs.ErrNotFound.
func Files(pid, most int) (files, sockets int, err error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, 0, ended(pid, err)
	}
	defer dir.Close()
	target := make([]byte, 16)
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			n, err := unix.Readlinkat(int(dir.Fd()), name, target)
			if errors.Is(err, unix.ENOENT) {
				continue // closed since
			}
			if err != nil {
				return 0, 0, ended(pid, err)
			}
			if bytes.HasPrefix(target[:n], []byte("socket:")) {
				sockets++
			}
			if files++; files > most {
				return 0, 0, fmt.Errorf("process %d has more than %d files open: %w", pid, most, errdefs.ErrResourceExhausted)
			}
		}
		if errors.Is(err, io.EOF) {
			return files, sockets, nil
		}
		if err != nil {
			return 0, 0, ended(pid, err)
		}
	}
}

// ended tells a process that has ended from other errors.
func ended(pid int, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w: %w", pid, err, errdefs.ErrNotFound)
	}
	return err
}
