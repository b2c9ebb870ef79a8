package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/images"
)

// Whatever an image is removed by, all of its names go at once, and its space with them.
func TestRemoveTakesAllNames(t *testing.T) {
	r, other := images.NewRegistry(t, images.RegistryConfig{}), images.NewRegistry(t, images.RegistryConfig{})
	names := []string{r.Addr + "/a/two:v1", r.Addr + "/a/two:v2", other.Addr + "/b/two:v1"}
	for _, at := range []struct {
		r         *images.Registry
		repo, tag string
	}{{r, "a/two", "v1"}, {r, "a/two", "v2"}, {other, "b/two", "v1"}} {
		push(t, at.r, two("", "same"), at.repo, at.tag)
	}
	f := onTmpfs(t, 64<<20)
	for by := range 5 {
		var img store.Image
		for _, name := range names {
			img = f.pull(name)
		}
		img, err := f.Get(f.ctx, string(img.ID))
		if err != nil || len(img.RepoTags) != 3 || len(img.RepoDigests) != 2 {
			t.Fatalf("%+v, %v", img, err)
		}
		ref := slices.Concat(names, img.RepoDigests[:1], []string{string(img.ID)})[by]
		if err := f.Remove(f.ctx, ref); err != nil {
			t.Fatal(err)
		}
		for _, gone := range slices.Concat(img.RepoTags, img.RepoDigests, []string{string(img.ID)}) {
			if _, err := f.Get(f.ctx, gone); !errdefs.IsNotFound(err) {
				t.Errorf("removed by %s, %s: %v", ref, gone, err)
			}
		}
		if list, err := f.List(f.ctx); err != nil || len(list) != 0 {
			t.Errorf("removed by %s: %v, %v", ref, list, err)
		}
		if _, used, inodes, err := f.FsInfo(f.ctx); err != nil || used != 0 || inodes != 0 {
			t.Errorf("removed by %s: %d bytes and %d inodes are used, %v", ref, used, inodes, err)
		}
		f.mustBeWhole()
	}
}

// What a container holds stays as it is, though the image is gone for everybody else; it goes with its last user. What another image has
// too stays with that.
func TestRemoveHeldAndShared(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "one"), "a/two", "v1")
	push(t, r, two("", "two"), "a/two", "v2")
	f := onTmpfs(t, 64<<20)
	held, shares := f.pull(r.Addr+"/a/two:v1"), f.pull(r.Addr+"/a/two:v2")
	layers, err := f.Layers(f.ctx, held.ID)
	if err := errors.Join(err, f.Pin(f.ctx, held.ID, "c1"), f.Pin(f.ctx, held.ID, "c2"), f.Remove(f.ctx, string(held.ID))); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if now, err := f.Layers(f.ctx, held.ID); err != nil || !slices.Equal(now, layers) {
			t.Errorf("%s: layers %v, %v, before %v", when, now, err, layers)
		}
		if raw, err := os.ReadFile(filepath.Join(layers[0], "etc/shared")); err != nil || string(raw) != "one" {
			t.Errorf("%s: %q, %v", when, raw, err)
		}
		f.mustBeWhole()
	}
	check("removed")
	// Somebody pulls it again, and removes it again.
	f.pull(r.Addr + "/a/two:v1")
	check("pulled again")
	f.gone(r.Addr + "/a/two:v1")
	check("removed again")
	if err := errors.Join(f.Unpin(f.ctx, held.ID, "c1"), f.Remove(f.ctx, string(shares.ID))); err != nil {
		t.Fatal(err)
	}
	check("with one user, and the other image removed")
	if err := f.Unpin(f.ctx, held.ID, "c2"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range layers {
		awaitGone(t, dir) // without a restart
	}
	f.mustBeWhole()
	if _, used, _, err := f.FsInfo(f.ctx); err != nil || used != 0 {
		t.Errorf("%d bytes are used, %v", used, err)
	}
}

// An image is removed while it is pulled: at each step of the pull, by its name and by its id, with and without its layers being
// there under another name before. The pull comes to its end with a whole image; or it says that the image was removed.
func TestRemoveWhileItIsPulled(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "same"), "a/two", "v1")
	push(t, r, two("", "same"), "a/two", "v2")
	before, ref := r.Addr+"/a/two:v1", r.Addr+"/a/two:v2"
	f := onTmpfs(t, 64<<20)
	for _, there := range []bool{false, true} {
		for _, point := range []string{"image/pull/resolved", "image/pull/manifest", "image/layer/unpacked", "image/layer/committed", "image/configuration/label/before",
			"image/pull/unpacked", "image/publish/synced", "image/published"} {
			f.gone(before)
			f.gone(ref)
			f.cfg.ResumeWindow = 1 // nothing is left of the last round
			f.mustBeWhole()
			id := f.pull(before).ID
			if !there {
				f.gone(before)
			}
			var once sync.Once
			var beside sync.WaitGroup
			disarm := failpoint.Arm(point, func() (err error) {
				once.Do(func() { // the removal may come to this point, too
					if point == "image/publish/synced" { // side by side with the change of names
						beside.Go(func() { f.gone(string(id)) })
						return
					}
					err = errors.Join(f.Remove(f.ctx, string(id)), f.Remove(f.ctx, ref), f.Remove(f.ctx, before))
				})
				return err
			})
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
			disarm()
			beside.Wait()
			switch {
			case err == nil:
				if now, err := f.Get(f.ctx, ref); err == nil && f.read(now, "etc/shared") != "same" {
					t.Errorf("%s: a damaged image", point)
				} else if err != nil && !errdefs.IsNotFound(err) {
					t.Errorf("%s: %v", point, err)
				}
				if img.ID != id {
					t.Errorf("%s: %s, want %s", point, img.ID, id)
				}
			case !errdefs.IsUnavailable(err):
				t.Errorf("%s: %v", point, err)
			}
			f.mustBeWhole()
			f.pull(ref)
			f.has(ref, "same")
		}
	}
}

// Containers are made of an image that others remove and pull again all the time: each gets layers that stay for as long as it holds
// them, or an error.
func TestRemoveWhileItIsUsed(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "text"), "a/two", "v1")
	ref := r.Addr + "/a/two:v1"
	f := onTmpfs(t, 64<<20)
	var work sync.WaitGroup
	var stop atomic.Bool
	var used, refused atomic.Int64
	for _, user := range []ids.ContainerID{"c1", "c2"} {
		work.Go(func() {
			for !stop.Load() {
				switch err := f.use(ref, user); {
				case err == nil:
					used.Add(1)
				case errdefs.IsNotFound(err) || errdefs.IsUnavailable(err):
					refused.Add(1)
					if _, err := f.Pull(f.ctx, image.PullRequest{Ref: ref}); err != nil && !errdefs.IsUnavailable(err) {
						t.Error(err)
						return
					}
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	for range 40 {
		if _, err := f.Pull(f.ctx, image.PullRequest{Ref: ref}); err != nil && !errdefs.IsUnavailable(err) {
			t.Error(err)
		}
		f.gone(ref)
	}
	stop.Store(true)
	work.Wait()
	t.Logf("used %d times, refused %d times", used.Load(), refused.Load())
	f.pull(ref)
	f.has(ref, "text")
	if err := f.use(ref, "c3"); err != nil {
		t.Error(err)
	}
	f.gone(ref)
	f.mustBeWhole()
	if _, used, _, err := f.FsInfo(f.ctx); err != nil || used != 0 {
		t.Errorf("%d bytes are used, %v", used, err)
	}
}

// use does what the making of a container does: it looks the image up, holds it, and sees whether it holds what it has looked up.
func (f *fixture) use(ref string, user ids.ContainerID) error {
	img, err := f.Get(f.ctx, ref)
	if err != nil {
		return err
	}
	layers, err := f.Layers(f.ctx, img.ID)
	if err != nil {
		return err
	}
	if err := f.Pin(f.ctx, img.ID, user); err != nil {
		return err
	}
	now, err := f.Layers(f.ctx, img.ID)
	if err == nil && slices.Equal(now, layers) {
		// From here on they are there, whatever happens.
		var raw []byte
		for range 20 {
			if raw, err = os.ReadFile(filepath.Join(layers[0], "etc/shared")); err != nil || string(raw) != "text" {
				err = errors.Join(err, errors.New("layers that are held have gone"), errdefs.ErrDataLoss)
				break
			}
		}
	} else if err == nil {
		err = errdefs.ErrUnavailable
	}
	return errors.Join(err, f.Unpin(f.ctx, img.ID, user))
}

// The files of layers that nobody uses are removed while others pull and remove images: no lock is held for them.
func TestRemoveHoldsNobodyUp(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "one"), "a/two", "v1")
	push(t, r, two("", "two"), "a/two", "v2")
	push(t, r, two("", "three"), "a/two", "v3")
	f := onTmpfs(t, 64<<20)
	first, second := f.pull(r.Addr+"/a/two:v1"), f.pull(r.Addr+"/a/two:v2")
	layers, err := f.Layers(f.ctx, first.ID)
	if err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	disarm := failpoint.Arm("image/snapshot/cleanup/before", func() error {
		if !once.Swap(true) {
			close(begun)
			<-goOn
		}
		return nil
	})
	defer disarm()
	removed := make(chan error, 1)
	go func() { removed <- f.Remove(f.ctx, string(first.ID)) }()
	<-begun
	if _, err := os.Stat(layers[0]); err != nil {
		t.Errorf("its files were removed before, with the locks of all: %v", err)
	}
	others := make(chan error, 1)
	go func() {
		_, err := f.Pull(f.ctx, image.PullRequest{Ref: r.Addr + "/a/two:v3"})
		others <- errors.Join(err, f.Remove(f.ctx, string(second.ID)))
	}()
	select {
	case err := <-others:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a pull, or a removal, waits for files of others to be removed")
	}
	close(goOn)
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(layers[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after the removal: %v", layers[0], err)
	}
	f.mustBeWhole()
}
