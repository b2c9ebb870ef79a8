package stats

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/tree"
)

func write(t testing.TB, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}

// manyFiles are more than are read of a directory at a time.
const manyFiles = 1024

func measureOnce(t testing.TB, dir string) *walker {
	t.Helper()
	w := &walker{ctx: t.Context(), turn: make(chan struct{}, 1)}
	if err := w.walk(dir); err != nil {
		t.Fatal(err)
	}
	if len(w.turn) != 0 {
		t.Error("the turn was not given back")
	}
	return w
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	write(t, filepath.Join(outside, "large"), 1<<20)
	empty := measureOnce(t, dir)
	if empty.inodes != 1 {
		t.Errorf("an empty directory has %d inodes", empty.inodes)
	}
	for i := range 3 * manyFiles {
		write(t, filepath.Join(dir, fmt.Sprint(i)), 0)
	}
	sub := filepath.Join(dir, "a", "b")
	for _, err := range []error{
		os.MkdirAll(sub, 0o755), os.Symlink(outside, filepath.Join(dir, "out")), os.Symlink("..", filepath.Join(sub, "up")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600), unix.Mknod(filepath.Join(sub, "whiteout"), unix.S_IFCHR, 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(sub, "file"), 100<<10)
	if err := os.Link(filepath.Join(sub, "file"), filepath.Join(dir, "same")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(sub, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	w := measureOnce(t, dir)
	// The directory, two below it, the empty files, two links, the fifo, the whiteout, the file of two names, the sparse one.
	if want := uint64(1 + 2 + 3*manyFiles + 2 + 1 + 1 + 1 + 1); w.inodes != want {
		t.Errorf("%d inodes, want %d", w.inodes, want)
	}
	if w.bytes < 100<<10 || w.bytes > 400<<10 {
		t.Errorf("%d bytes, want 100 KiB and some directories", w.bytes)
	}
}

func TestWalkStaysInItsFileSystem(t *testing.T) {
	dir := t.TempDir()
	mounted := filepath.Join(dir, "mounted")
	if err := os.Mkdir(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(mounted, unix.MNT_DETACH)
	write(t, filepath.Join(mounted, "file"), 1000)
	if w := measureOnce(t, dir); w.inodes != 1 {
		t.Errorf("%d inodes, want the directory alone", w.inodes)
	}
}

// A tree of any depth is counted whole.
func TestWalkDeep(t *testing.T) {
	const levels = 300
	dir := t.TempDir()
	path := dir
	for range levels {
		path = filepath.Join(path, "d")
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "file"), 1<<20)
	if w := measureOnce(t, dir); w.unfinished || w.inodes != levels+2 || w.bytes < 1<<20 {
		t.Errorf("unfinished: %v, %d inodes of %d bytes, want %d and a mebibyte at least", w.unfinished, w.inodes, w.bytes, levels+2)
	}
}

// A tree may go while it is walked over.
func TestWalkOfWhatGoes(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "layer")
		for i := range 20 {
			if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "x", "y"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		removed := make(chan error, 1)
		go func() { removed <- os.RemoveAll(dir) }()
		w := &walker{ctx: t.Context(), turn: make(chan struct{}, 1)}
		if err := w.walk(dir); err != nil && !os.IsNotExist(err) {
			// wrapped: only the directory itself may be missing
			if _, gone := os.Lstat(dir); gone == nil {
				t.Error(err)
			}
		}
		if err := <-removed; err != nil {
			t.Error(err)
		}
	}
	w := &walker{ctx: t.Context(), turn: make(chan struct{}, 1)}
	if err := w.walk("/nonexistent/layer"); err == nil {
		t.Error("a missing directory was measured")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	full := make(chan struct{}, 1)
	full <- struct{}{}
	if err := (&walker{ctx: ctx, turn: full}).walk(t.TempDir()); err == nil || len(full) != 1 {
		t.Errorf("a walk that has ended: %v", err)
	}
}

func TestLayers(t *testing.T) {
	c := New(Config{Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	dirs := map[string]string{}
	for i := range 3 * layerWalks {
		dir := t.TempDir()
		for j := range i {
			write(t, filepath.Join(dir, fmt.Sprint(j)), 10)
		}
		dirs[fmt.Sprint(i)] = dir
		c.Measure(fmt.Sprint(i), dir)
	}
	await := func(id string, ok func(layerUsage) bool) layerUsage {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if u, there := c.layers.usage(id, dirs[id]); there && ok(u) {
				return u
			}
		}
		t.Fatalf("layer %s is not measured", id)
		return layerUsage{}
	}
	for i := range 3 * layerWalks {
		if u := await(fmt.Sprint(i), func(layerUsage) bool { return true }); u.inodes != uint64(i+1) || u.at.IsZero() || u.at.After(time.Now()) {
			t.Errorf("layer %d: %+v", i, u)
		}
	}
	// What was told is told again until it is time for another look.
	write(t, filepath.Join(dirs["5"], "more"), 10)
	before, _ := c.layers.usage("5", dirs["5"])
	if again, _ := c.layers.usage("5", dirs["5"]); again != before || again.inodes != 6 {
		t.Errorf("%+v, want %+v", again, before)
	}
	c.layers.mu.Lock()
	c.layers.all["5"].last.at = time.Now().Add(-2 * layerAge)
	c.layers.mu.Unlock()
	await("5", func(u layerUsage) bool { return u.inodes == 7 })

	c.Forget("5")
	c.Keep(func(id string) bool { return id == "1" })
	c.layers.mu.Lock()
	defer c.layers.mu.Unlock()
	if len(c.layers.all) != 1 || c.layers.all["1"] == nil {
		t.Errorf("%d layers are known, want one", len(c.layers.all))
	}
}

func TestLayersAreDue(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		age, took time.Duration
		want      bool
	}{{layerAge, 0, false}, {layerAge + 1, 0, true}, {layerAge + 1, time.Second, false}, {51 * time.Second, time.Second, true}} {
		if got := (&layerUsage{at: now.Add(-c.age), took: c.took}).due(now); got != c.want {
			t.Errorf("measured %v ago in %v: due %v", c.age, c.took, got)
		}
	}
}

// A huge layer does not keep the others waiting: each turn ends.
func TestTurns(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 * manyFiles {
		write(t, filepath.Join(dir, fmt.Sprint(i)), 0)
	}
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		w := &walker{ctx: t.Context(), turn: turn}
		if err := w.take(); err != nil {
			t.Fatal(err)
		}
		got := false
		go func() { turn <- struct{}{}; got = true; <-turn }()
		synctest.Wait()                       // it waits for its turn
		w.began = w.began.Add(-2 * layerTurn) // as if this walk had gone on for that long
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := tree.Walk(fd, w); err != nil {
			t.Fatal(err)
		}
		if !got {
			t.Error("a long walk has kept its turn")
		}
		w.yield()
		if w.inodes != 2*manyFiles || w.took < 2*layerTurn {
			t.Errorf("%d inodes in %v", w.inodes, w.took)
		}
	})
}
