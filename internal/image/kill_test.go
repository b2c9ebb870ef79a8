package image_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/image"
	imagefsck "monopod.dev/monopod/internal/image/fsck"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/images"
)

// deeds are what a child does that is killed, by their names.
var deeds = map[string]func(ctx context.Context, s *image.Store, arg string) error{
	"pull": func(ctx context.Context, s *image.Store, ref string) error {
		_, err := s.Pull(ctx, image.PullRequest{Ref: ref})
		return err
	},
	"load": func(ctx context.Context, s *image.Store, file string) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = s.Load(ctx, image.LoadRequest{Archive: f})
		return err
	},
	"remove": func(ctx context.Context, s *image.Store, ref string) error { return s.Remove(ctx, ref) },
	"untag":  func(ctx context.Context, s *image.Store, ref string) error { return s.Untag(ctx, ref) },
	"pin": func(ctx context.Context, s *image.Store, id string) error {
		return s.Pin(ctx, ids.ImageID(id), "container")
	},
	"unpin": func(ctx context.Context, s *image.Store, id string) error {
		return s.Unpin(ctx, ids.ImageID(id), "container")
	},
}

// onTmpfs is a store in memory: a killed process loses nothing of what it has written, synced or not, and nobody waits for a disk.
func onTmpfs(t testing.TB, size uint64) *fixture {
	t.Helper()
	dir := t.TempDir()
	if err := mount.Tmpfs(dir, mount.TmpfsOptions{Size: size, Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mount.Unmount(dir); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{t: t, ctx: t.Context(), logs: &lockedBuffer{}}
	f.cfg = image.Config{Root: filepath.Join(dir, "images")}
	t.Cleanup(f.close)
	f.reopen()
	return f
}

// findings are what fsck finds in the closed store.
func (f *fixture) findings(deep bool) []fsck.Finding {
	f.t.Helper()
	r, err := imagefsck.Check(f.ctx, imagefsck.Options{Root: f.cfg.Root, Deep: deep})
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Findings
}

// mustBeWhole closes the store for a moment and lets fsck look at it.
func (f *fixture) mustBeWhole() {
	f.t.Helper()
	f.close()
	for _, found := range f.findings(true) {
		f.t.Errorf("fsck: %s %s %s: %s", found.Severity, found.Kind, found.Object, found.Problem)
	}
	f.reopen()
}

// killAt lets a child do something and kills it where the failpoint says; it returns the point's name, if it tells it, or "" when the
// child came to its end.
func killAt(t *testing.T, root, deed, failpoints string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	var said bytes.Buffer
	cmd.Env = append(os.Environ(), childRoot+"="+root, childDo+"="+deed, failpoint.EnvVar+"="+failpoints)
	cmd.Stderr = &said
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		point, _ := strings.CutPrefix(strings.TrimSpace(said.String()), "failpoint ")
		return cmp.Or(point, "a failpoint")
	}
	if err != nil {
		t.Fatalf("%s, to be killed at %s: %v: %s", deed, failpoints, err, &said)
	}
	return ""
}

// TestKilledAtEverySideEffect kills a process at each of the points before and after what it does to the disk, from the opening
// of the store to its end. After each: nothing is damaged; the store opens; the same call again succeeds; and fsck finds
// nothing at all.
func TestKilledAtEverySideEffect(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "first"), "a/two", "v1")
	push(t, r, two("", "second"), "a/two", "v2") // shares its lower layer with the first
	first, second := r.Addr+"/a/two:v1", r.Addr+"/a/two:v2"
	archive := filepath.Join(t.TempDir(), "archive.tar")
	if err := images.WriteArchive(archive, two("localhost/two:v1", "first"), two("localhost/two:v2", "third")); err != nil {
		t.Fatal(err)
	}
	// What tag:v1 is in the second registry: the name moves from one image to another.
	moved := images.NewRegistry(t, images.RegistryConfig{})
	push(t, moved, two("", "first"), "a/two", "v1")
	tag := moved.Addr + "/a/two:v1"

	for name, c := range map[string]struct {
		before func(f *fixture) string // makes the state, and says what the child does
		check  func(f *fixture)        // that it is done
		points []string                // at which it must have been killed
	}{
		"pull": {
			before: func(f *fixture) string { f.gone(first); f.pull(second); return "pull " + first },
			check:  func(f *fixture) { f.has(first, "first"); f.has(second, "second") },
			points: []string{"image/pull/resolved", "image/pull/manifest", "image/blob/begin/after", "image/blob/commit/before", "image/blob/commit/after", "image/layer/prepared",
				"image/snapshot/prepare/after", "image/download/write", "image/download/complete", "image/layer/unpacked", "image/snapshot/commit/before", "image/snapshot/commit/after",
				"image/layer/committed", "image/configuration/label/before", "image/configuration/label/after", "image/pull/unpacked", "image/publish/synced", "image/names/before",
				"image/names/after", "image/published", "image/collect/begun", "image/collect/ended", "image/snapshot/remove/before", "image/snapshot/cleanup/after", "image/blob/delete/after"},
		},
		"load": {
			before: func(f *fixture) string {
				f.gone("localhost/two:v1")
				f.gone("localhost/two:v2")
				f.pull(second)
				return "load " + archive
			},
			check: func(f *fixture) {
				f.has("localhost/two:v1", "first")
				f.has("localhost/two:v2", "third")
				f.has(second, "second")
			},
			points: []string{"image/load/read", "image/blob/commit/after", "image/snapshot/commit/after", "image/names/after", "image/published", "image/blob/delete/before"},
		},
		"move a tag": {
			before: func(f *fixture) string {
				f.gone(tag)
				push(t, moved, two("", "second"), "a/two", "v1")
				f.pull(tag)
				push(t, moved, two("", "first"), "a/two", "v1")
				return "pull " + tag
			},
			check:  func(f *fixture) { f.has(tag, "first") },
			points: []string{"image/names/before", "image/names/after", "image/snapshot/commit/after"},
		},
		"remove": {
			before: func(f *fixture) string { f.pull(first); f.pull(second); return "remove " + first },
			check: func(f *fixture) {
				if _, err := f.Get(f.ctx, first); !errdefs.IsNotFound(err) {
					f.t.Errorf("a removed image: %v", err)
				}
				f.has(second, "second")
			},
			points: []string{"image/names/before", "image/names/after", "image/remove/unnamed", "image/collect/begun", "image/blob/delete/before", "image/blob/delete/after",
				"image/snapshot/remove/before", "image/snapshot/remove/after", "image/snapshot/cleanup/before", "image/collect/ended"},
		},
		"untag": {
			before: func(f *fixture) string { f.pull(first); return "untag " + first },
			check: func(f *fixture) {
				if _, err := f.Get(f.ctx, first); !errdefs.IsNotFound(err) {
					f.t.Errorf("a removed name: %v", err)
				}
				if list, err := f.List(f.ctx); err != nil || !slices.ContainsFunc(list, func(i store.Image) bool { return len(i.RepoTags) == 0 && len(i.RepoDigests) == 1 }) {
					f.t.Errorf("its digest is gone too: %v, %v", list, err)
				}
			},
			points: []string{"image/names/after", "image/untag/unnamed"},
		},
		"pin": {
			before: func(f *fixture) string {
				img := f.pull(first)
				if err := f.Unpin(f.ctx, img.ID, "container"); err != nil {
					f.t.Fatal(err)
				}
				return "pin " + string(img.ID)
			},
			check: func(f *fixture) {
				if pins, err := f.Pins(f.ctx); err != nil || len(pins["container"]) != 1 {
					f.t.Errorf("pins: %v, %v", pins, err)
				}
			},
			points: []string{"image/pin/before", "image/pin/after"},
		},
		"unpin of the last user": {
			before: func(f *fixture) string {
				img := f.pull(first)
				if err := errors.Join(f.Pin(f.ctx, img.ID, "container"), f.Remove(f.ctx, string(img.ID))); err != nil {
					f.t.Fatal(err)
				}
				return "unpin " + string(img.ID)
			},
			check: func(f *fixture) {
				f.close() // with the collection that was asked for
				f.reopen()
				if _, used, _, err := f.FsInfo(f.ctx); err != nil || used != 0 {
					f.t.Errorf("%d bytes are used, %v", used, err)
				}
			},
			points: []string{"image/unpin/before", "image/unpin/after", "image/snapshot/remove/after", "image/blob/delete/after"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has a store and children of its own
			f := onTmpfs(t, 64<<20)
			met := map[string]int{}
			kill := func(failpoints string) (point string) {
				deed := c.before(f)
				f.close()
				if point = killAt(t, f.cfg.Root, deed, failpoints); point != "" {
					met[point]++
				}
				for _, found := range f.findings(true) {
					if found.Severity == fsck.Damaged {
						t.Errorf("%s %s: %s", found.Kind, found.Object, found.Problem)
					}
				}
				f.cfg.ResumeWindow = 0 // it goes on with what the killed one has brought
				f.reopen()
				verb, arg, _ := strings.Cut(deed, " ")
				if err := deeds[verb](f.ctx, f.Store, arg); err != nil {
					t.Errorf("again: %v", err)
				}
				c.check(f)
				f.cfg.ResumeWindow = time.Nanosecond // and the next child begins from nothing
				f.mustBeWhole()
				if t.Failed() {
					t.Fatalf("killed at %s (%s)", point, failpoints)
				}
				return point
			}
			n := 1
			for kill(fmt.Sprintf("image/...=kill-at:%d", n)) != "" {
				n++
			}
			// What happens at the same time comes in any order, so that the count may have passed some by.
			for _, p := range c.points {
				if met[p] == 0 && kill(p+"=kill") == "" {
					t.Errorf("it does not come to %s", p)
				}
			}
			t.Logf("killed %d times", n-1)
			t.Log(slices.Sorted(maps.Keys(met)))
		})
	}
}

// gone removes an image if it is there.
func (f *fixture) gone(ref string) {
	f.t.Helper()
	if err := f.Remove(f.ctx, ref); err != nil {
		f.t.Fatal(err)
	}
}

// has says that the image is there, and what a file of it holds.
func (f *fixture) has(ref, text string) {
	f.t.Helper()
	img, err := f.Get(f.ctx, ref)
	if err != nil {
		f.t.Error(err)
		return
	}
	if got := f.read(img, "etc/shared"); got != text {
		f.t.Errorf("%s holds %q, want %q", ref, got, text)
	}
}
