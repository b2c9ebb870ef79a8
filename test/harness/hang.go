package harness

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// HangingFS is a FUSE file system with a file "hang" whose look-up is never answered: who asks for it waits in the kernel, and not
// even SIGKILL ends that.
type HangingFS struct {
	// Dir is where it is mounted.
	Dir string
	// Asked is closed when somebody waits.
	Asked <-chan struct{}

	fd     int
	asked  chan struct{}
	once   sync.Once
	closed sync.Once
}

// MountHanging mounts a file system that hangs for the time of the test.
func MountHanging(t testing.TB, dir string) *HangingFS {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("a file system that hangs (needs FUSE in the kernel): %v", err)
		}
	}
	check(os.MkdirAll(dir, 0o755))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	check(err)
	check(unix.Mount("hang", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)))
	asked := make(chan struct{})
	fs := &HangingFS{Dir: dir, Asked: asked, asked: asked, fd: fd}
	served := make(chan struct{})
	go func() { defer close(served); fs.serve() }()
	t.Cleanup(func() {
		fs.Release()
		<-served
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && err != unix.EINVAL { // it may have gone already
			t.Error(err)
		}
	})
	return fs
}

// Release ends the file system: all that wait in it go on, with an error.
func (fs *HangingFS) Release() {
	// A forced unmount ends the connection, whether the mount can go or is in use.
	fs.closed.Do(func() { _ = unix.Unmount(fs.Dir, unix.MNT_FORCE) })
}

// serve answers what a mount needs, by the kernel's protocol 7.31 (linux/fuse.h).
func (fs *HangingFS) serve() {
	const lookup, getattr, initialize = 1, 3, 26
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(fs.fd, buf)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			unix.Close(fs.fd)
			return
		}
		var out []byte
		errno := -int32(unix.ENOSYS)
		switch opcode := binary.NativeEndian.Uint32(buf[4:]); opcode {
		case initialize:
			errno, out = 0, make([]byte, 64)
			binary.NativeEndian.PutUint32(out, 7)
			binary.NativeEndian.PutUint32(out[4:], 31)
			binary.NativeEndian.PutUint32(out[20:], 1<<16)
		case getattr:
			errno, out = 0, make([]byte, 104)
			binary.NativeEndian.PutUint64(out[16:], 1)          // ino
			binary.NativeEndian.PutUint32(out[16+60:], 0o40755) // mode
			binary.NativeEndian.PutUint32(out[16+64:], 2)       // nlink
		case lookup:
			if string(buf[40:n-1]) == "hang" {
				fs.once.Do(func() { close(fs.asked) })
				continue
			}
			errno = -int32(unix.ENOENT)
		}
		answer := binary.NativeEndian.AppendUint32(nil, uint32(16+len(out)))
		answer = binary.NativeEndian.AppendUint32(answer, uint32(errno))
		answer = append(append(answer, buf[8:16]...), out...)
		_, _ = unix.Write(fs.fd, answer) // whoever asked may have gone
	}
}
