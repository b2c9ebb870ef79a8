package copytree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCopy(t *testing.T) {
	from, to, secret := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "secret")
	old := time.Unix(1_000_000_000, 5000)
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(secret, []byte("secret"), 0o600), os.MkdirAll(from+"/d/e", 0o755), os.WriteFile(from+"/d/e/f", []byte("content"), 0o644), os.Chmod(from+"/d/e/f", 0o640|os.ModeSetuid),
		os.Link(from+"/d/e/f", from+"/d/second"), os.Symlink(secret, from+"/abs"), os.Symlink("../../../../../../../../"+secret, from+"/d/up"), os.Symlink(filepath.Dir(secret), from+"/dir"),
		unix.Mkfifo(from+"/pipe", 0o622), os.Chmod(from+"/d", 0o1751), os.Chtimes(from+"/d/e/f", old, old), os.Chtimes(from+"/d", old, old), os.Chmod(from, 0o750))
	sparse, err := os.Create(from + "/sparse")
	check(err)
	_, err = sparse.WriteAt([]byte("end"), 1<<30)
	check(err, sparse.Truncate(2<<30), sparse.Close())
	root := os.Geteuid() == 0
	if root {
		check(os.Chown(from, 1000, 1001), os.Lchown(from+"/abs", 7, 8), os.Chown(from+"/d/e/f", 3, 4), os.Chmod(from+"/d/e/f", 0o640|os.ModeSetuid))
	}
	if err := unix.Setxattr(from+"/d", "user.note", []byte("x"), 0); err != nil {
		t.Log("no extended attributes here: ", err)
	}
	check(Copy(t.Context(), open(t, from), open(t, to)))
	err = filepath.Walk(from, func(path string, want os.FileInfo, err error) error {
		check(err)
		name := strings.TrimPrefix(path, from)
		got, err := os.Lstat(to + name)
		if err != nil {
			return err
		}
		a, b := want.Sys(), got.Sys()
		var w, g unix.Stat_t
		check(unix.Lstat(path, &w), unix.Lstat(to+name, &g))
		if got.Mode() != want.Mode() || g.Uid != w.Uid || g.Gid != w.Gid || g.Size != w.Size && !want.IsDir() || !got.ModTime().Equal(want.ModTime()) || g.Nlink != w.Nlink {
			t.Errorf("%s is %+v, want %+v", name, b, a)
		}
		if want.Mode()&os.ModeSymlink != 0 {
			one, _ := os.Readlink(path)
			if other, _ := os.Readlink(to + name); other != one {
				t.Errorf("%s leads to %q, want %q", name, other, one)
			}
		}
		return nil
	})
	check(err)
	if raw, err := os.ReadFile(to + "/d/second"); err != nil || string(raw) != "content" {
		t.Errorf("content %q (%v)", raw, err)
	}
	var st unix.Stat_t
	if check(unix.Stat(to+"/sparse", &st)); st.Blocks*512 > 1<<20 {
		t.Errorf("a file of holes takes %d bytes", st.Blocks*512)
	}
	buf := make([]byte, 8)
	if n, err := unix.Getxattr(from+"/d", "user.note", buf); err == nil {
		if got, err := unix.Getxattr(to+"/d", "user.note", buf); err != nil || got != n {
			t.Errorf("extended attribute: %d %v", got, err)
		}
	}
}

func TestCopyGivesUp(t *testing.T) {
	from := t.TempDir()
	at := from
	for range maxDepth + 1 {
		at += "/d"
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), open(t, from), open(t, t.TempDir())); !errdefs.IsInvalidArgument(err) {
		t.Errorf("%v, want InvalidArgument", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Copy(ctx, open(t, from), open(t, t.TempDir())); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that nobody waits any more", err)
	}
}
