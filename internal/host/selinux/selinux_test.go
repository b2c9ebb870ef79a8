package selinux

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func labelOf(t *testing.T, path string) string {
	t.Helper()
	raw := make([]byte, 256)
	n, err := unix.Lgetxattr(path, attribute, raw)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	if err != nil {
		t.Fatal(path, err)
	}
	return strings.TrimRight(string(raw[:n]), "\x00")
}

// The attribute can be set by root whether the kernel has SELinux or not; without, any text is a label.
func TestRelabel(t *testing.T) {
	label := "system_u:object_r:container_file_t:s0:c1,c2"
	if Enabled() {
		var err error
		if label, err = Own(); err != nil { // which the policy knows
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	dir := filepath.Join(t.TempDir(), "volume")
	deep := filepath.Join(dir, "a", "b")
	for _, d := range []string{deep, filepath.Join(outside, "d")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{filepath.Join(deep, "file"), filepath.Join(dir, "none")}
	for _, f := range append(files, filepath.Join(outside, "f")) {
		if err := os.WriteFile(f, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil { // nobody waits at it
		t.Fatal(err)
	}
	links := []string{filepath.Join(dir, "link"), filepath.Join(dir, "dirlink"), filepath.Join(dir, "dangling")}
	for i, to := range []string{filepath.Join(outside, "f"), filepath.Join(outside, "d"), "nowhere"} {
		if err := os.Symlink(to, links[i]); err != nil {
			t.Fatal(err)
		}
	}
	before := labelOf(t, filepath.Join(outside, "f"))
	for range 2 {
		if err := Relabel(t.Context(), dir, label); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range append(append(files, links...), dir, deep, filepath.Join(dir, "fifo")) {
		if got := labelOf(t, path); got != label {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{filepath.Join(outside, "f"), filepath.Join(outside, "d")} {
		if got := labelOf(t, path); got != before {
			t.Errorf("%s, to which a link leads: %q", path, got)
		}
	}
	if err := SetFile(filepath.Join(dir, "link"), label); err != nil || labelOf(t, filepath.Join(outside, "f")) != before {
		t.Errorf("a link was followed (%v)", err)
	}
	if err := Relabel(t.Context(), links[1], label); err != nil || labelOf(t, filepath.Join(outside, "d")) != before {
		t.Errorf("a link was followed (%v)", err)
	}
}

func TestRelabelRefused(t *testing.T) {
	for _, path := range []string{"/", "/etc", "/usr", "/var/lib"} {
		if err := Relabel(t.Context(), path, "u:r:t"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	dir := t.TempDir()
	if err := Relabel(t.Context(), filepath.Join(dir, "missing"), "u:r:t"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Relabel(ctx, dir, "u:r:t"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	deep := dir
	for range maxDepth {
		deep += "/d"
		if err := os.Mkdir(deep, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := Relabel(t.Context(), dir, "u:r:t"); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}

func TestDecision(t *testing.T) {
	for answer, want := range map[string]struct {
		allowed    uint64
		permissive bool
	}{
		"2 ffffffff 0 fffffffd 5 0":     {2, false},
		"0 ffffffff 0 ffffffff 5 1\x00": {0, true},
	} {
		if allowed, permissive, err := decision(answer); err != nil || allowed != want.allowed || permissive != want.permissive {
			t.Errorf("%q: %x, %v, %v", answer, allowed, permissive, err)
		}
	}
	for _, answer := range []string{"", "1 2", "x ffffffff 0 0 0 0", "0 ffffffff 0 0 0 x"} {
		if _, _, err := decision(answer); err == nil {
			t.Errorf("%q was taken", answer)
		}
	}
}
