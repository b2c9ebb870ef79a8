package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scratch is a directory in memory.
func scratch(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=200k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	return dir
}

// chain makes directories within each other, each with that name and one file beside it.
func chain(t *testing.T, dir, name string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(at, name, 0o700))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(at)
		at = next
	}
	must(t, unix.Mknodat(at, "pipe", unix.S_IFIFO|0o600, 0))
	unix.Close(at)
}

// fewFiles has no more than so many files opened beside those that are.
func fewFiles(t *testing.T, more int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open) + more), Max: before.Max}))
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &before) })
}

// allocated is how many bytes f allocates, which is more than it holds at any time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}

// A tree of twenty thousand levels, and one whose paths are longer than any path may be, are walked over and removed with few descriptors and little memory.
func TestDeepTrees(t *testing.T) {
	for _, c := range []struct {
		name   string
		levels int
	}{{"d", 20_000}, {strings.Repeat("n", 250), 300}} {
		root := filepath.Join(scratch(t), "tree")
		must(t, os.Mkdir(root, 0o700))
		chain(t, root, c.name, c.levels)
		fewFiles(t, max(keptOpen, maxOpen)+8)
		var v counter
		took := allocated(func() { must(t, walkOver(root, &v)) })
		if v.files != c.levels+1 || v.deepest != c.levels+1 {
			t.Errorf("%d levels: %d files, the deepest at %d", c.levels, v.files, v.deepest)
		}
		if took > 16<<20 {
			t.Errorf("a walk over %d levels allocates %d bytes", c.levels, took)
		}
		took = allocated(func() { must(t, Remove(t.Context(), root)) })
		gone(t, root)
		if took > 16<<20 {
			t.Errorf("the removal of %d levels allocates %d bytes", c.levels, took)
		}
	}
}

type counter struct{ files, deepest int }

func (c *counter) Pause() error { return nil }

func (c *counter) Visit(_ string, depth int, _ *unix.Stat_t) bool {
	c.files, c.deepest = c.files+1, max(c.deepest, depth)
	return true
}

func walkOver(dir string, v Visitor) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return Walk(fd, v)
}

// Wide and bushy trees, whose directories are left and entered again on both sides of what is kept open.
func TestBushyTree(t *testing.T) {
	root := filepath.Join(scratch(t), "tree")
	must(t, os.Mkdir(root, 0o700))
	want := 0
	at, deep := root, keptOpen*2
	for range deep {
		at = filepath.Join(at, "d")
		must(t, os.Mkdir(at, 0o700))
		for i := range 3 {
			side := filepath.Join(at, fmt.Sprintf("s%d", i))
			must(t, os.Mkdir(side, 0o700))
			must(t, os.WriteFile(filepath.Join(side, "f"), nil, 0o600))
		}
		want += 7
	}
	for i := range 2000 {
		must(t, os.WriteFile(filepath.Join(root, fmt.Sprintf("a file with a long name, number %d", i)), nil, 0o600))
	}
	var v counter
	must(t, walkOver(root, &v))
	if v.files != want+2000 || v.deepest != deep+2 {
		t.Errorf("%d files, the deepest at %d, want %d and %d", v.files, v.deepest, want+2000, deep+2)
	}
	must(t, Remove(t.Context(), root))
	gone(t, root)
	must(t, Remove(t.Context(), root))
	must(t, Remove(t.Context(), filepath.Join(root, "in", "nothing")))
	must(t, Remove(t.Context(), filepath.Join(filepath.Dir(root), strings.Repeat("n", 256))))
}

// Files of all kinds go, and a link goes without what it leads to; a file is removed as well as a directory.
func TestKinds(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	must(t, errors.Join(os.Mkdir(kept, 0o700), os.WriteFile(filepath.Join(kept, "f"), nil, 0o600)))
	root := filepath.Join(dir, "tree")
	must(t, os.MkdirAll(filepath.Join(root, "closed"), 0o700))
	must(t, errors.Join(os.Symlink(kept, filepath.Join(root, "link")), os.Symlink("/nowhere", filepath.Join(root, "dangling")), unix.Mkfifo(filepath.Join(root, "pipe"), 0o600),
		unix.Mknod(filepath.Join(root, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))), os.WriteFile(filepath.Join(root, "closed", "f"), nil, 0), os.Chmod(filepath.Join(root, "closed"), 0)))
	must(t, Remove(t.Context(), root))
	gone(t, root)
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	must(t, errors.Join(os.Symlink(kept, link), os.WriteFile(file, nil, 0o600)))
	must(t, errors.Join(Remove(t.Context(), link), Remove(t.Context(), file)))
	gone(t, link)
	gone(t, file)
	if _, err := os.Stat(filepath.Join(kept, "f")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// What is mounted in a tree stays with all that is in it, however deep, and the rest goes.
func TestMountsStay(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	must(t, errors.Join(os.Mkdir(kept, 0o700), os.WriteFile(filepath.Join(kept, "f"), nil, 0o600)))
	root := filepath.Join(dir, "tree")
	at := root
	for range maxOpen * 2 {
		at = filepath.Join(at, "d")
	}
	mounts := []string{filepath.Join(root, "m"), filepath.Join(root, "file"), filepath.Join(at, "m")}
	must(t, errors.Join(os.MkdirAll(mounts[0], 0o700), os.MkdirAll(mounts[2], 0o700), os.WriteFile(mounts[1], nil, 0o600), os.WriteFile(filepath.Join(at, "goes"), nil, 0o600)))
	for _, m := range mounts {
		from := kept
		if m == mounts[1] {
			from = filepath.Join(kept, "f")
		}
		must(t, unix.Mount(from, m, "", unix.MS_BIND, ""))
	}
	t.Cleanup(func() { exec.Command("umount", "-R", mounts[0]).Run() })
	var v counter
	must(t, walkOver(root, &v))
	err := Remove(t.Context(), root)
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), mounts[0]) || !strings.Contains(err.Error(), mounts[1]) {
		t.Errorf("a tree with mounts: %v, want an error that names them", err)
	}
	if _, err := os.Stat(filepath.Join(kept, "f")); err != nil {
		t.Fatalf("what was mounted is gone: %v", err)
	}
	var left []string
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "f" {
			must(t, unix.Unmount(filepath.Dir(path), 0))
			left = append(left, path)
		}
		return nil
	}))
	must(t, unix.Unmount(mounts[1], 0))
	if len(left) != 2 {
		t.Errorf("mounted directories that were left: %q, want two", left)
	}
	must(t, Remove(t.Context(), root))
	gone(t, root)
	if _, err := os.Stat(filepath.Join(kept, "f")); err != nil {
		t.Fatalf("what was mounted is gone: %v", err)
	}
}

// Somebody who renames and writes all the time while a tree is removed keeps nothing of it, once he ends, and loses nothing beside it.
func TestRemoveBesideAWriter(t *testing.T) {
	dir := scratch(t)
	kept := filepath.Join(dir, "kept")
	must(t, errors.Join(os.Mkdir(kept, 0o700), os.WriteFile(filepath.Join(kept, "f"), nil, 0o600)))
	root := filepath.Join(dir, "tree")
	must(t, os.Mkdir(root, 0o700))
	chain(t, root, "d", 500)
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; !stop.Load(); i++ {
			a, b := filepath.Join(root, "d", "d"), filepath.Join(root, fmt.Sprintf("x%d", i%7))
			_ = os.Rename(a, b)
			_ = os.Symlink(kept, a)
			_ = os.MkdirAll(filepath.Join(root, "d", "e", "f"), 0o700)
			_ = os.Remove(a)
			_ = os.Rename(b, a)
		}
	}()
	for range 20 {
		_ = walkOver(root, &counter{})
		_ = Remove(t.Context(), root) // it may fail as long as somebody writes
	}
	stop.Store(true)
	<-ended
	must(t, Remove(t.Context(), root))
	gone(t, root)
	if _, err := os.Stat(filepath.Join(kept, "f")); err != nil {
		t.Errorf("what a link led to is gone: %v", err)
	}
}

// A removal that is given up leaves a tree that the next one removes, wherever it was.
func TestRemoveGivenUp(t *testing.T) {
	root := filepath.Join(scratch(t), "tree")
	must(t, os.Mkdir(root, 0o700))
	chain(t, root, "d", 2000)
	ctx := &givenUp{Context: t.Context(), left: 500}
	if err := Remove(ctx, root); !errors.Is(err, context.Canceled) {
		t.Fatalf("a removal that is given up: %v", err)
	}
	if _, err := os.Stat(root); err != nil {
		t.Fatal(err)
	}
	must(t, Remove(t.Context(), root))
	gone(t, root)
}

type givenUp struct {
	context.Context
	left int
}

func (g *givenUp) Err() error {
	if g.left--; g.left <= 0 {
		return context.Canceled
	}
	return nil
}

// What may not be removed is told by its name, and the rest goes.
func TestImmutable(t *testing.T) {
	root := filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(root, "a", "b"), 0o700))
	path := filepath.Join(root, "a", "b", "stays")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	const immutable = 0x10 // FS_IMMUTABLE_FL
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
		t.Logf("this file system has no immutable files: %v", err)
		return
	}
	must(t, os.WriteFile(filepath.Join(root, "goes"), nil, 0o600))
	began := time.Now()
	err = Remove(t.Context(), root)
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), path) {
		t.Errorf("with an immutable file: %v, want EPERM at %s", err, path)
	}
	if took := time.Since(began); took > elsewherePatience {
		t.Errorf("it took %s", took)
	}
	gone(t, filepath.Join(root, "goes"))
	must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0))
	must(t, Remove(t.Context(), root))
	gone(t, root)
}

// What is thrown into a bin is gone from its place at once, and from the disk soon; what a process has left there, the next one removes.
func TestBin(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	bin := NewBin(filepath.Join(dir, BinName), log)
	thing := filepath.Join(dir, "thing")
	for range 2 { // the second of the same name, while the first is there
		must(t, os.MkdirAll(filepath.Join(thing, "a", "b"), 0o700))
		must(t, bin.Throw(t.Context(), thing))
		gone(t, thing)
	}
	must(t, bin.Throw(t.Context(), thing))
	if entries, err := os.ReadDir(filepath.Join(dir, BinName)); err != nil || len(entries) != 2 {
		t.Fatalf("in the bin: %v, %v", entries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	next := NewBin(filepath.Join(dir, BinName), log)
	go func() { ended <- next.Run(ctx) }()
	empty := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			entries, err := os.ReadDir(filepath.Join(dir, BinName))
			must(t, err)
			if len(entries) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("still in the bin: %v", entries)
			}
		}
	}
	empty()
	must(t, os.WriteFile(thing, nil, 0o600))
	must(t, next.Throw(t.Context(), thing))
	gone(t, thing)
	empty()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What cannot be moved into the bin is removed at once.
func TestBinOnAnotherDisk(t *testing.T) {
	dir := t.TempDir()
	bin := NewBin(filepath.Join(scratch(t), BinName), slog.New(slog.DiscardHandler))
	must(t, os.MkdirAll(filepath.Join(dir, "thing", "a"), 0o700))
	must(t, bin.Throw(t.Context(), filepath.Join(dir, "thing")))
	gone(t, filepath.Join(dir, "thing"))
}
