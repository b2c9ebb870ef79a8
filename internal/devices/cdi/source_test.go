package cdi

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/cdispec"
)

// start runs a source until the test ends. Its ticks come over the channel.
func start(t *testing.T, dirs ...string) (*Source, <-chan struct{}) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	s := New(Config{Dirs: dirs, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ticks, done := make(chan struct{}, 100), make(chan error, 1)
	go func() { done <- s.Run(ctx, func() { ticks <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		goleak.VerifyNone(t, ignore)
	})
	<-ticks // the folders are watched
	return s, ticks
}

// await waits until the source has the devices that are named.
func await(t *testing.T, s *Source, ticks <-chan struct{}, want ...string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for !slices.Equal(names(s.Snapshot().Devices), want) {
		select {
		case <-ticks:
		case <-timeout:
			t.Fatalf("devices are %q, want %q; problems: %q", names(s.Snapshot().Devices), want, s.Snapshot().Problems)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFoldersAreWatched(t *testing.T) {
	root := t.TempDir()
	early, late := filepath.Join(root, "early"), filepath.Join(root, "not/yet/there")
	must(t, os.Mkdir(early, 0o755))
	s, ticks := start(t, early, late)

	write(t, filepath.Join(early, "x.json"), spec("v.com/w", "w0"))
	await(t, s, ticks, "v.com/w=w0")
	write(t, filepath.Join(early, "x.json"), spec("v.com/w", "w1"))
	await(t, s, ticks, "v.com/w=w1")
	write(t, filepath.Join(late, "y.json"), spec("v.com/w", "w2")) // the folder and its parents come into being
	await(t, s, ticks, "v.com/w=w1", "v.com/w=w2")
	must(t, os.Remove(filepath.Join(early, "x.json")))
	await(t, s, ticks, "v.com/w=w2")

	must(t, os.RemoveAll(filepath.Join(root, "not")))
	await(t, s, ticks)
	write(t, filepath.Join(late, "y.json"), spec("v.com/w", "w3"))
	await(t, s, ticks, "v.com/w=w3")
	must(t, os.Rename(filepath.Join(root, "not"), filepath.Join(root, "gone"))) // two levels above the folder
	await(t, s, ticks)
	must(t, os.Rename(filepath.Join(root, "gone"), filepath.Join(root, "not")))
	await(t, s, ticks, "v.com/w=w3")

	tmp := filepath.Join(root, "tmp.json")
	write(t, tmp, spec("v.com/w", "w4"))
	must(t, os.Rename(tmp, filepath.Join(late, "y.json"))) // an atomic write
	await(t, s, ticks, "v.com/w=w4")
	write(t, filepath.Join(late, "y.json"), "{") // a fault, and its end
	await(t, s, ticks)
	if p := s.Snapshot().Problems; len(p) != 1 || p[0].Paths[0] != filepath.Join(late, "y.json") {
		t.Errorf("problems: %q", p)
	}
	write(t, filepath.Join(late, "y.json"), spec("v.com/w", "w5"))
	await(t, s, ticks, "v.com/w=w5")
	if p := s.Snapshot().Problems; len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
}

func TestAFolderThatIsASymbolicLinkIsFollowedWhenItTurns(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "v1/x.json"), spec("v.com/w", "w1"))
	write(t, filepath.Join(root, "v2/x.json"), spec("v.com/w", "w2"))
	must(t, os.Symlink("v1", filepath.Join(root, "cdi")))
	s, ticks := start(t, filepath.Join(root, "cdi"))
	await(t, s, ticks, "v.com/w=w1")
	must(t, os.Symlink("v2", filepath.Join(root, "next")))
	must(t, os.Rename(filepath.Join(root, "next"), filepath.Join(root, "cdi")))
	await(t, s, ticks, "v.com/w=w2")
	write(t, filepath.Join(root, "v2/x.json"), spec("v.com/w", "w3"))
	await(t, s, ticks, "v.com/w=w3")
}

func TestCheckNamesAllAndTicksWhenTheMissingPathComes(t *testing.T) {
	root := t.TempDir()
	dir, node := filepath.Join(root, "cdi"), filepath.Join(root, "dev/sub/w0")
	path := filepath.Join(dir, "x.json")
	write(t, path, `{"cdiVersion": "0.5.0", "kind": "v.com/w", "containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "`+root+`/hook"}]},
		"devices": [{"name": "w0", "containerEdits": {"deviceNodes": [{"path": "/dev/w0", "hostPath": "`+node+`"}]}}]}`)
	s, ticks := start(t, dir)

	err := s.Check("v.com/w", "w0", false)
	var drift *cdispec.DriftError
	if !errors.As(err, &drift) || drift.Spec != path || drift.Device != "v.com/w=w0" || len(drift.Faults) != 2 {
		t.Fatalf("got %#v", err)
	}
	for _, part := range []string{path, `"v.com/w=w0"`, node + " does not exist", root + "/hook does not exist"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	must(t, os.MkdirAll(filepath.Dir(node), 0o755))
	must(t, unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	write(t, root+"/hook", "")
	must(t, os.Chmod(root+"/hook", 0o755))
	timeout := time.After(time.Minute)
	for s.Check("v.com/w", "w0", false) != nil {
		select {
		case <-ticks:
		case <-timeout:
			t.Fatalf("no tick; awaited %q, check: %v", s.awaitedPaths(), s.Check("v.com/w", "w0", false))
		}
	}
	if err := s.Check("v.com/w", "w9", false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a device that nobody defines: %v", err)
	}
}

func TestUnrelatedEventsDoNotTick(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "cdi")
	s, ticks := start(t, dir)
	for range 20 {
		write(t, filepath.Join(root, "other"), "x")
	}
	write(t, filepath.Join(dir, "x.json"), spec("v.com/w", "w0")) // comes after them in the same queue
	await(t, s, ticks, "v.com/w=w0")
	if n := len(ticks); n > 1 {
		t.Errorf("%d further ticks", n)
	}
}
