// Package smallfs mounts small file systems for tests, and fills them.
package smallfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Kinds are the kinds of file systems that Mount knows and this machine can have: that of most /run, and that of most disks, for which there
// have to be loop devices.
var Kinds = kinds()

func kinds() []string {
	if _, err := os.Stat("/dev/loop-control"); errors.Is(err, os.ErrNotExist) {
		return []string{"tmpfs"}
	}
	return []string{"tmpfs", "ext4"}
}

// Mount mounts a new file system of a size in bytes at a directory, until the test has ended. (What uses it has ended before: clean-ups run in
// the reverse order.)
func Mount(t testing.TB, kind string, size int64, dir string) {
	t.Helper()
	t.Cleanup(MountUntil(t, kind, size, dir))
}

// MountUntil is Mount until the returned function is called.
func MountUntil(t testing.TB, kind string, size int64, dir string) (unmount func()) {
	t.Helper()
	switch kind {
	case "tmpfs":
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0755", size)); err != nil {
			t.Fatal(err)
		}
	case "ext4":
		image := filepath.Join(t.TempDir(), "disk")
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
			t.Fatal(err)
		}
		for _, cmd := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
			if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", cmd, err, out)
			}
		}
	default:
		t.Fatalf("file system %q", kind)
	}
	return func() {
		// One that is busy is detached: another mount namespace of the host may hold a copy of it. That nothing stays mounted here is for the
		// test to see.
		err := unix.Unmount(dir, 0)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(dir, unix.MNT_DETACH)
		}
		if err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	}
}

// Fill makes files in a directory until its file system takes no byte and no file any more, and returns what makes room again.
func Fill(t testing.TB, dir string) (empty func()) {
	t.Helper()
	at, err := os.MkdirTemp(dir, "fill-")
	if errors.Is(err, unix.ENOSPC) {
		return func() {}
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if !fillOne(t, filepath.Join(at, fmt.Sprint(i))) {
			return func() {
				if err := os.RemoveAll(at); err != nil {
					t.Error(err)
				}
			}
		}
	}
	t.Fatalf("%s does not get full", dir)
	return nil
}

// fillOne writes a file until the disk is full, and says whether a byte of it was written.
func fillOne(t testing.TB, path string) bool {
	t.Helper()
	f, err := os.Create(path)
	if errors.Is(err, unix.ENOSPC) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	written := 0
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for block := make([]byte, size); ; {
			n, err := f.Write(block)
			written += n
			if errors.Is(err, unix.ENOSPC) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return written > 0
}
