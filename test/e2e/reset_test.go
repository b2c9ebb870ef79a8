package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/harness"
)

// TestResetOfADiskOfItsOwn: where the data directory is a file system of its own, it is emptied and stays mounted, and what lies below the mount point stays as it is.
func TestResetOfADiskOfItsOwn(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	data := filepath.Join(n.Dir, "data")
	below := filepath.Join(data, "of-somebody-else")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("disk", data, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	mounted := true
	defer func() {
		if mounted {
			_ = unix.Unmount(data, unix.MNT_DETACH)
		}
	}()
	n.Start()
	n.Reset()
	left, err := os.ReadDir(data)
	if err != nil || len(left) != 0 {
		t.Errorf("in the data directory are %v, %v", left, err)
	}
	if err := unix.Unmount(data, 0); err != nil {
		t.Fatalf("what was mounted at the data directory: %v", err)
	}
	mounted = false
	if _, err := os.Stat(below); err != nil {
		t.Errorf("what lay below the mount point: %v", err)
	}
}
