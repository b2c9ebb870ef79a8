//go:build cgo

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opencontainers/runc/libcontainer/exeseal"
)

// sealSelf goes on in a copy of this binary in memory that nobody can change. It returns, in the copy.
func sealSelf() error {
	if exeseal.IsSelfExeCloned() {
		return nil
	}
	copied, err := sealedCopy("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("copy the binary to memory: %w", err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d", copied.Fd())
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, os.Args, os.Environ()))
}

// sealedCopy copies a file to a memory file, executable and sealed.
func sealedCopy(path string) (*os.File, error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("monopod-executor", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3: executable unless told otherwise
		fd, err = unix.MemfdCreate("monopod-executor", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	dst := os.NewFile(uintptr(fd), "monopod-executor")
	if _, err := io.Copy(dst, src); err != nil {
		return nil, err
	}
	if err := dst.Chmod(0o511); err != nil {
		return nil, err
	}
	if err := seal(fd); err != nil {
		return nil, err
	}
	return dst, nil
}

// sealPatience is for how long seal tries.
const sealPatience = time.Minute

// seal makes a file that nobody can change. The kernel refuses it with EBUSY while it holds pages of the file for something else (moving or
// scanning memory), for which it waits a fraction of a second only.
func seal(fd int) error {
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
		if !errors.Is(err, unix.EBUSY) || time.Since(begin) > sealPatience {
			return os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
		}
	}
}

// nameProcess sets the name that ps shows, which after an execution by descriptor is a number. Without it things only
// look odd, so an error does not matter.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
