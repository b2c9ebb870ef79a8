// Package sealed makes programs in memory that nobody can change: what the executor executes of itself, and of its successors, so that no container
// can reach the file on the disk, and nothing is executed but what was looked at.
package sealed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Copy copies a program to a memory file, executable and sealed. A source that holds more than Limit bytes, or nothing, is an error.
func Copy(src io.Reader) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("monopod-executor", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3: executable unless told otherwise
		fd, err = unix.MemfdCreate("monopod-executor", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	dst := os.NewFile(uintptr(fd), "monopod-executor")
	if err := fill(dst, src); err != nil {
		dst.Close()
		return nil, err
	}
	return dst, nil
}

// Limit bounds what is taken for a program, in bytes.
const Limit = 1 << 30

func fill(dst *os.File, src io.Reader) error {
	n, err := io.Copy(dst, io.LimitReader(src, Limit+1))
	if err != nil {
		return err
	}
	if n == 0 || n > Limit {
		return fmt.Errorf("it has %d bytes, want 1 to %d", n, Limit)
	}
	if err := dst.Chmod(0o511); err != nil {
		return err
	}
	return seal(int(dst.Fd()))
}

// Path is where the program of a descriptor can be executed by the process that has it.
func Path(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// patience is for how long seal tries.
const patience = time.Minute

// seal makes a file that nobody can change. The kernel refuses it with EBUSY while it holds pages of the file for something else (moving or
// scanning memory), for which it waits a fraction of a second only.
func seal(fd int) error {
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
		if !errors.Is(err, unix.EBUSY) || time.Since(begin) > patience {
			return os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
		}
	}
}
