package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A directory on which something is still mounted in a copy of the tree is removed as soon as the copy has gone; what is mounted at its own
// path is an error at once.
func TestRemoveWhatIsMountedElsewhere(t *testing.T) {
	base := t.TempDir()
	tree, copied := filepath.Join(base, "tree"), filepath.Join(base, "copy")
	dir := filepath.Join(tree, "dir")
	must(t, errors.Join(os.MkdirAll(dir, 0o755), os.Mkdir(copied, 0o755)))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() {
		unix.Unmount(filepath.Join(copied, "dir"), 0)
		unix.Unmount(copied, unix.MNT_DETACH)
		unix.Unmount(dir, unix.MNT_DETACH)
	})
	must(t, unix.Mount(tree, copied, "", unix.MS_BIND|unix.MS_REC, ""))
	must(t, unix.Mount("", copied, "", unix.MS_PRIVATE|unix.MS_REC, ""))
	remove := func() error { return unix.Rmdir(dir) }
	if err := removeFree(unix.AT_FDCWD, dir, time.Now().Add(time.Minute), remove); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("a mount point: %v, want EBUSY", err)
	}
	must(t, unix.Unmount(dir, 0))
	if err := removeFree(unix.AT_FDCWD, dir, time.Now().Add(time.Millisecond), remove); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("with a copy that stays: %v, want EBUSY", err)
	}
	tried, removed := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		removed <- removeFree(unix.AT_FDCWD, dir, time.Now().Add(time.Minute), func() error {
			select {
			case tried <- struct{}{}:
			default:
			}
			return remove()
		})
	}()
	<-tried
	<-tried // from here on it waits for the list of mounts
	must(t, unix.Unmount(filepath.Join(copied, "dir"), 0))
	must(t, <-removed)
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
