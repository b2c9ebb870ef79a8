package image_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/images"
)

// FsInfo tells at once what a pull has brought and a removal has freed.
func TestFsInfoIsExact(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "one"), "a/two", "v1")
	push(t, r, two("", "two"), "a/two", "v2")
	f := open(t)
	measure := func() (bytes, inodes uint64) {
		t.Helper()
		mountpoint, bytes, inodes, err := f.FsInfo(f.ctx)
		if err != nil || mountpoint != f.cfg.Root {
			t.Fatal(mountpoint, err)
		}
		if _, again, _, _ := f.FsInfo(f.ctx); again != bytes {
			t.Errorf("asked again: %d, before %d", again, bytes)
		}
		if want := inodesIn(t, f.cfg.Root); inodes != want {
			t.Errorf("%d inodes, on the disk are %d", inodes, want)
		}
		return bytes, inodes
	}
	empty, _ := measure()
	first := f.pull(r.Addr + "/a/two:v1")
	one, inodes := measure()
	f.pull(r.Addr + "/a/two:v2")
	both, more := measure()
	if empty != 0 || one == 0 || both <= one || more <= inodes {
		t.Errorf("empty %d bytes, with one image %d (%d inodes), with two that share a layer %d (%d)", empty, one, inodes, both, more)
	}
	f.close()
	f.reopen()
	if again, _ := measure(); again != both {
		t.Errorf("opened again: %d bytes, before %d", again, both)
	}
	if err := f.Pin(f.ctx, first.ID, "container"); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(f.ctx, string(first.ID)); err != nil {
		t.Fatal(err)
	}
	if held, _ := measure(); held >= both || held <= one { // its manifest is gone, its layers are held
		t.Errorf("with a pinned image: %d bytes, before its removal %d", held, both)
	}
	if err := f.Remove(f.ctx, r.Addr+"/a/two:v2"); err != nil {
		t.Fatal(err)
	}
	if err := f.Unpin(f.ctx, first.ID, "container"); err != nil {
		t.Fatal(err)
	}
	f.close() // with the collection that Unpin has asked for
	f.reopen()
	if left, inodes := measure(); left != 0 || inodes != 0 {
		t.Errorf("an empty store takes %d bytes, %d inodes", left, inodes)
	}
}

// inodesIn counts what is in layers and blobs.
func inodesIn(t testing.TB, root string) uint64 {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(root, "overlay/snapshots/*/fs"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	count := func(dir string, top bool) {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || path == dir && !top {
				return err
			}
			info, err := os.Lstat(path)
			if err == nil {
				seen[info.Sys().(*syscall.Stat_t).Ino] = true
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	for _, dir := range dirs {
		count(dir, true)
	}
	count(filepath.Join(root, "content/blobs/sha256"), false)
	return uint64(len(seen))
}

// BenchmarkFsInfo is with 50 images of 10 layers each: as often as a kubelet asks, right after a change, and in a new process.
func BenchmarkFsInfo(b *testing.B) {
	f := open(b)
	for i := range 50 {
		img := ociarchive.Image{Name: fmt.Sprintf("localhost/many/image%d:v1", i), Config: ocispec.ImageConfig{Cmd: []string{"/x"}}}
		for l := range 10 {
			img.Layers = append(img.Layers, ociarchive.Layer{{Path: "x", Data: fmt.Appendf(nil, "%d/%d", i, l)}})
		}
		built, err := ociarchive.Build(img)
		if err != nil {
			b.Fatal(err)
		}
		var archive bytes.Buffer
		if err := ociarchive.Write(&archive, built); err != nil {
			b.Fatal(err)
		}
		if _, err := f.load(&archive); err != nil {
			b.Fatal(err)
		}
	}
	list, err := f.List(f.ctx)
	if err != nil || len(list) != 50 {
		b.Fatal(len(list), err)
	}
	run := func(name string, before func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				before()
				b.StartTimer()
				if _, used, _, err := f.FsInfo(f.ctx); err != nil || used == 0 {
					b.Fatal(used, err)
				}
			}
		})
	}
	run("again", func() {})
	run("changed", func() {
		if err := f.Pin(f.ctx, list[0].ID, "x"); err != nil {
			b.Fatal(err)
		}
		if err := f.Unpin(f.ctx, list[0].ID, "x"); err != nil {
			b.Fatal(err)
		}
	})
	run("opened", func() {
		f.close()
		f.reopen()
	})
}
