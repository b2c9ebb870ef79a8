package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestReadIn(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Mkdir(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(root, "etc/file"), []byte("text"), 0o600),
		os.Symlink("/etc/file", filepath.Join(root, "absolute")),
		os.Symlink("../../../../../../.."+outside, filepath.Join(root, "climbs")),
		os.Symlink("loop", filepath.Join(root, "loop")),
		os.Symlink("/proc/self/fd/0", filepath.Join(root, "magic")),
		unix.Mkfifo(filepath.Join(root, "fifo"), 0o600),
		unix.Mknod(filepath.Join(root, "zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))),
		os.Truncate(filepath.Join(root, "etc/file"), 4),
		os.WriteFile(filepath.Join(root, "huge"), nil, 0o600),
		os.Truncate(filepath.Join(root, "huge"), maxRootFile+1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"etc/file": "text", "absolute": "text", "missing": "", "etc/file/below": "", "climbs": "", "magic": ""} {
		if got, err := ReadFile(root, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"fifo", "zero", "etc", "loop", "huge"} {
		if got, err := ReadFile(root, name); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "/"+name) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := ReadFile(filepath.Join(root, "none"), "x"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no root: %v", err)
	}
}

// TestWalksAreRepeated: what others rename on the host meanwhile is no fault of a path.
func TestWalksAreRepeated(t *testing.T) {
	root, busy := t.TempDir(), t.TempDir()
	for _, dir := range []string{"a/b/c", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(root, "etc/real"), []byte("x"), 0o644), os.Symlink("../a/b/c/../../../../../etc/real", filepath.Join(root, "etc/passwd"))); err != nil {
		t.Fatal(err)
	}
	from, to := filepath.Join(busy, "from"), filepath.Join(busy, "to")
	if err := os.Mkdir(from, 0o755); err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				if err := errors.Join(os.Rename(from, to), os.Rename(to, from)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for i := range 5000 {
		raw, err := ReadFile(root, "etc/passwd")
		if err != nil || string(raw) != "x" {
			t.Errorf("walk %d: %q, %v", i, raw, err)
			break
		}
		if found, err := within(root, "a/b/../../../etc/passwd"); err != nil || found != filepath.Join(root, "etc/real") {
			t.Errorf("walk %d: %s, %v", i, found, err)
			break
		}
	}
	close(stop)
	<-ended
}
