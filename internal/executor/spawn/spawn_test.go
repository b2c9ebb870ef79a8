//go:build cgo

package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
)

func nativeArch(t *testing.T) libseccomp.ScmpArch {
	t.Helper()
	arch, err := libseccomp.GetNativeArch()
	if err != nil {
		t.Fatal(err)
	}
	return arch
}

func TestStubIsKnownByItsName(t *testing.T) {
	if stubName != proc.WaitingComm {
		t.Errorf("the stub is %q, package proc knows it as %q", stubName, proc.WaitingComm)
	}
}

// Nothing that lies in a root leads out of it.
func TestInRoot(t *testing.T) {
	base := t.TempDir()
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, dir := range []string{root + "/dir/sub", outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"up": "../../outside", "abs": outside, "top": "/", "in": "/dir/sub", "loop": "loop", "dangling": "/nowhere/at/all"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, c := range []struct {
		name string
		make func(int, string, uint32) (int, error)
		want string // where it lies in the root; empty: refused
	}{
		{"/new/deep/er", mkdirIn, "new/deep/er"}, {"../../x", mkdirIn, "x"}, {"/in/below", mkdirIn, "dir/sub/below"},
		{"/top/t", mkdirIn, "t"}, {"/up/u", mkdirIn, ""}, {"/abs/a", mkdirIn, ""}, {"/loop/l", mkdirIn, ""}, {"/dangling", mkdirIn, ""},
		{"/file/f", mkdirIn, ""}, {"/file", mkdirIn, ""},
		{"/some/file", createIn, "some/file"}, {"/in/file", createIn, "dir/sub/file"}, {"/file", createIn, "file"}, {"/dangling", createIn, ""},
	} {
		got, err := c.make(fd, c.name, 0o755)
		if err == nil {
			link, lerr := os.Readlink("/proc/self/fd/" + itoa(got))
			if lerr != nil || c.want == "" || link != filepath.Join(root, c.want) {
				t.Errorf("%s: made %s (%v), want %q", c.name, link, lerr, c.want)
			}
			unix.Close(got)
		} else if c.want != "" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("made outside: %v (%v)", left, err)
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func TestEnvironment(t *testing.T) {
	got, err := environment([]string{"A=1", "B=2", "A=3", "HOME=", "C=x=y"}, 0)
	if err != nil || !slices.Equal(got[:3], []string{"B=2", "A=3", "C=x=y"}) || !strings.HasPrefix(got[3], "HOME=/") || len(got) != 4 {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := environment([]string{"HOME=/h"}, 0); err != nil || !slices.Equal(got, []string{"HOME=/h"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"A", "=1", "A=\x00"} {
		if _, err := environment([]string{bad}, 0); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"yes": 0o755, "no": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=:relative:/none:" + dir}
	for _, c := range []struct{ name, want, fault string }{
		{"yes", dir + "/yes", ""}, {"no", "", "executable file not found in $PATH"}, {"missing", "", "executable file not found in $PATH"},
		{dir + "/yes", dir + "/yes", ""}, {dir + "/no", "", "permission denied"}, {dir + "/none", "", "no such file or directory"}, {dir, "", "is a directory"},
		{"./yes", "./yes", ""},
	} {
		got, err := lookPath(c.name, env)
		var programErr *ProgramError
		switch {
		case c.fault == "" && (err != nil || got != c.want):
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		case c.fault != "" && (!errors.As(err, &programErr) || !strings.Contains(programErr.Text, c.fault)):
			t.Errorf("%s: %v, want %q", c.name, err, c.fault)
		}
	}
}

// What f does to its thread stays with it, on whichever thread it is called.
func TestOnThread(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWUTS) }); err != nil {
			t.Fatal(err)
		}
	}
	// A thread ends a moment after its work.
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		elsewhere := threadsElsewhere(t, before)
		if len(elsewhere) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("this process was in %s, its threads are in %v", before, elsewhere)
		}
	}
}

func threadsElsewhere(t *testing.T, uts string) (others []string) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if now, err := os.Readlink("/proc/self/task/" + thread.Name() + "/ns/uts"); err == nil && now != uts {
			others = append(others, now)
		}
	}
	return others
}

// The empty mount namespace is empty, and is the same for everybody.
func TestEmptyNamespace(t *testing.T) {
	s, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := onThread(func() error {
			if err := s.enterEmpty(); err != nil {
				return err
			}
			entries, err := os.ReadDir("/")
			if err != nil || len(entries) != 1 || entries[0].Name() != emptyRoom {
				t.Errorf("in it: %v, %v", entries, err)
			}
			if err := os.WriteFile("/x", nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("written to it: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
