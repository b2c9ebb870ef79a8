package mount

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWithin(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a/b", "c", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if points, known := within(dir); !known || len(points) > 0 {
		t.Fatalf("nothing is mounted: %v, %t", points, known)
	}
	mnt := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
	}
	b := filepath.Join(dir, "a", "b")
	mnt("tmpfs", b, "tmpfs", 0)
	mnt("tmpfs", b, "tmpfs", 0) // two, one upon the other
	if err := os.Mkdir(filepath.Join(b, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	mnt("tmpfs", filepath.Join(b, "below"), "tmpfs", 0)
	mnt("/proc/self/ns/net", file, "", unix.MS_BIND)
	points, known := within(dir)
	slices.Sort(points) // they come in the order of the directory's entries, which is any
	if !known || !slices.Equal(points, []string{b, file}) {
		t.Fatalf("%v, %t", points, known)
	}
	if err := UnmountBelow(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := Below(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if points, known := within(filepath.Join(dir, "none")); !known || len(points) > 0 {
		t.Errorf("no such directory: %v, %t", points, known)
	}
}

// What cannot be looked at in a short time is looked up in the list of mounts.
func TestWithinGivesUp(t *testing.T) {
	dir := t.TempDir()
	for i := range mostEntries + 1 {
		if err := os.Mkdir(filepath.Join(dir, string(rune('a'+i%26))+string(rune('a'+i/26))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	point := filepath.Join(dir, "aa")
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(point, unix.MNT_DETACH) })
	if _, known := within(dir); known {
		t.Error("it is known")
	}
	if err := UnmountBelow(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := Below(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
