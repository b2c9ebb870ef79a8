package image_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/images"
)

// leave fills the store's file system until so many bytes are free; the returned function makes room again.
func (f *fixture) leave(free uint64) (room func()) {
	f.t.Helper()
	dir := filepath.Dir(f.cfg.Root)
	path := filepath.Join(dir, "filler")
	filler, err := os.Create(path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer filler.Close()
	for try := 1; ; try++ {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			f.t.Fatal(err)
		}
		has := st.Bavail * uint64(st.Bsize)
		if has <= free {
			break
		}
		err := unix.Fallocate(int(filler.Fd()), 0, 0, int64(has-free))
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOSPC) || try == 100 { // the store has taken some meanwhile
			f.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.t.Fatal(err)
		}
	}
}

// TestFullDisk: what does not fit is an error that says so, whatever was written when the disk was full. Nothing is damaged, the images
// that were there are as before, and can be removed, which makes room. With room again the same call succeeds and nothing is left.
func TestFullDisk(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	const size = 2 << 20
	push(t, r, large(size), "a/large", "v1")
	push(t, r, two("", "there"), "a/two", "v1")
	there, ref := r.Addr+"/a/two:v1", r.Addr+"/a/large:v1"
	archive := filepath.Join(t.TempDir(), "large.tar")
	img := large(size)
	img.Name = "localhost/large:v1"
	if err := images.WriteArchive(archive, img); err != nil {
		t.Fatal(err)
	}
	for _, deed := range []string{"pull " + ref, "load " + archive, "remove " + there, "untag " + there, "unpin"} {
		verb, arg, _ := strings.Cut(deed, " ")
		t.Run(verb, func(t *testing.T) {
			failed := 0
			for i, free := range []uint64{0, 1 << 10, 4 << 10, 8 << 10, 12 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 5 << 19} {
				f := onTmpfs(t, 24<<20)
				id := f.pull(there).ID
				if verb == "unpin" {
					arg = string(id)
					if err := errors.Join(f.Pin(f.ctx, id, "container"), f.Remove(f.ctx, string(id))); err != nil {
						t.Fatal(err)
					}
				}
				room := f.leave(free)
				err := deeds[verb](f.ctx, f.Store, arg)
				t.Logf("%d bytes free: %v", free, err)
				if err != nil {
					failed++
					if !errdefs.IsResourceExhausted(err) || errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), unix.ENOSPC.Error()) && !strings.Contains(err.Error(), "kept for the node") {
						t.Errorf("%d bytes free: %v", free, err)
					}
					if verb == "pull" || verb == "load" {
						f.has(there, "there")
					}
				}
				if i%2 == 0 || verb != "pull" && verb != "load" { // in this process, or the next
					room()
					if err := deeds[verb](f.ctx, f.Store, arg); err != nil {
						t.Errorf("%d bytes were free, with room again: %v", free, err)
					}
					f.mustBeWhole()
					f.close()
					continue
				}
				if err := f.Store.Close(); err != nil {
					t.Errorf("%d bytes free: closing: %v", free, err)
				}
				f.Store = nil
				for _, found := range f.findings(true) {
					t.Logf("%d bytes free, fsck: %s %s %s: %s", free, found.Severity, found.Kind, found.Object, found.Problem)
					if found.Severity == fsck.Damaged {
						t.Errorf("%d bytes free, fsck: %s %s: %s", free, found.Kind, found.Object, found.Problem)
					}
				}
				room()
				f.reopen()
				if err := deeds[verb](f.ctx, f.Store, arg); err != nil {
					t.Errorf("with room again: %v", err)
				}
				f.mustBeWhole()
				f.close()
			}
			if (failed == 0) == (verb == "pull" || verb == "load") {
				t.Errorf("%d failed", failed)
			}
		})
	}
}

// A store opens on a disk that has no block, or no inode, left, after a reboot too, and gives space back.
func TestOpenOnFullDisk(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "there"), "a/two", "v1")
	push(t, r, two("", "later"), "a/two", "v2")
	for what, full := range map[string]func(f *fixture) (room func()){
		"blocks": func(f *fixture) func() { return f.leave(0) },
		"inodes": func(f *fixture) func() {
			dir := filepath.Dir(f.cfg.Root)
			var st unix.Statfs_t
			if err := unix.Statfs(dir, &st); err != nil {
				t.Fatal(err)
			}
			limit := func(n uint64) {
				if err := unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprintf("nr_inodes=%d", n)); err != nil {
					t.Fatal(err)
				}
			}
			limit(st.Files - st.Ffree)
			return func() { limit(st.Files) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := onTmpfs(t, 24<<20)
			f.pull(r.Addr + "/a/two:v1")
			f.close()
			if err := os.RemoveAll(filepath.Join(f.cfg.Root, "downloads")); err != nil { // as if of another boot
				t.Fatal(err)
			}
			room := full(f)
			f.reopen()
			f.has(r.Addr+"/a/two:v1", "there")
			f.gone(r.Addr + "/a/two:v1")
			f.mustBeWhole()
			room()
			f.pull(r.Addr + "/a/two:v2")
			f.has(r.Addr+"/a/two:v2", "later")
			f.mustBeWhole()
		})
	}
}

// The disk gets full in the middle of a pull, at each of its steps.
func TestDiskGetsFull(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "there"), "a/two", "v1")
	push(t, r, two("", "wanted"), "a/two", "v2")
	there, ref := r.Addr+"/a/two:v1", r.Addr+"/a/two:v2"
	failed := 0
	for _, point := range []string{"image/pull/resolved", "image/blob/begin/before", "image/blob/begin/after", "image/blob/commit/before", "image/blob/commit/after", "image/pull/manifest",
		"image/snapshot/prepare/before", "image/snapshot/prepare/after", "image/layer/prepared", "image/download/write", "image/download/complete", "image/layer/unpacked",
		"image/snapshot/commit/before", "image/snapshot/commit/after", "image/layer/committed", "image/configuration/label/before", "image/pull/unpacked", "image/publish/synced",
		"image/names/before", "image/names/after", "image/published", "image/collect/begun"} {
		f := onTmpfs(t, 24<<20)
		f.pull(there)
		var once sync.Once
		var room func()
		disarm := failpoint.Arm(point, func() error {
			once.Do(func() { room = f.leave(0) })
			return nil
		})
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
		disarm()
		if err != nil {
			failed++
			if !errdefs.IsResourceExhausted(err) {
				t.Errorf("full at %s: %v", point, err)
			}
		}
		f.has(there, "there")
		once.Do(func() { room = f.leave(0) }) // what comes after the answer may not have come yet
		room()
		f.pull(ref)
		f.has(ref, "wanted")
		f.mustBeWhole()
		f.close()
	}
	if failed == 0 {
		t.Error("none failed")
	}
	t.Logf("%d failed", failed)
}
