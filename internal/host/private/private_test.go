package private

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// TestModes: whatever the umask is, and whatever an earlier version has made.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	for _, umask := range []int{0, 0o022, 0o077, 0o177} {
		for _, before := range []os.FileMode{0, 0o700, 0o711, 0o755, 0o777} {
			for name, c := range map[string]struct {
				make func(string) error
				want os.FileMode
			}{"closed": {Dir, 0o700}, "passage": {Passage, 0o711}} {
				path := filepath.Join(dir, name)
				if before != 0 {
					if err := os.Mkdir(path, 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.Chmod(path, before); err != nil {
						t.Fatal(err)
					}
				}
				old := syscall.Umask(umask)
				err := c.make(path)
				syscall.Umask(old)
				if err != nil || modeOf(t, path) != c.want {
					t.Errorf("%s over %o, umask %o: mode %o, %v", name, before, umask, modeOf(t, path), err)
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestClose(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"open": 0o711, "wide": 0o777, "closed": 0o700, "group": 0o700} {
		if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("open", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := Group(filepath.Join(dir, "group"), 4711); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Close(dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]os.FileMode{"open": 0o700, "wide": 0o700, "closed": 0o700, "group": 0o710, "file": 0o644} {
		if got := modeOf(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s has the mode %o, want %o", name, got, want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "group"))
	if err != nil || info.Sys().(*syscall.Stat_t).Gid != 4711 {
		t.Errorf("the group's directory: %v, %v", info.Sys(), err)
	}
}
