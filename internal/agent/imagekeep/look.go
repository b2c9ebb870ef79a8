package imagekeep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/kit/ids"
)

// look looks at the file system of the images, and removes what has to go.
func (k *Keeper) look(ctx context.Context) error {
	fs, err := k.fileSystem(ctx)
	if err != nil {
		return err
	}
	disk, err := statfs(fs.path)
	if err != nil {
		return err
	}
	need := imagegc.Need(k.cfg.Policy, disk)
	if k.listed && fs.taken == k.taken && need == 0 && !k.anyAged(time.Now()) {
		return nil
	}
	images, err := k.list(ctx)
	if err != nil {
		return err
	}
	k.taken, k.listed = fs.taken, true
	if need == 0 && !k.anyAged(time.Now()) {
		return nil
	}
	return k.collect(ctx, fs.path, images, need)
}

// fileSystem is where the images are, and a number that changes when what is there does.
type fileSystem struct {
	path  string
	taken uint64
}

func (k *Keeper) fileSystem(ctx context.Context) (fileSystem, error) {
	ctx, cancel := context.WithTimeout(ctx, cri.QueryTimeout)
	defer cancel()
	info, err := k.cfg.Runtime.Images.ImageFsInfo(ctx, &criv1.ImageFsInfoRequest{})
	if err != nil {
		return fileSystem{}, fmt.Errorf("CRI ImageFsInfo: %w", err)
	}
	if len(info.ImageFilesystems) == 0 || info.ImageFilesystems[0].GetFsId().GetMountpoint() == "" {
		return fileSystem{}, errors.New("CRI ImageFsInfo: the runtime names no file system of its images")
	}
	fs := info.ImageFilesystems[0]
	return fileSystem{fs.FsId.Mountpoint, fs.GetUsedBytes().GetValue() + fs.GetInodesUsed().GetValue()}, nil
}

// statfs asks the kernel how full a file system is. What is reserved for root is not available.
func statfs(path string) (imagegc.Disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return imagegc.Disk{}, fmt.Errorf("file system of the images, %s: statfs: %w", path, err)
	}
	if fs.Blocks == 0 {
		return imagegc.Disk{}, errNoCapacity
	}
	return imagegc.Disk{Capacity: fs.Blocks * uint64(fs.Bsize), Available: fs.Bavail * uint64(fs.Bsize)}, nil
}

// collect removes images that are too old, and then others until enough is free. The sizes of images count shared layers more
// than once, so it is measured what a round has freed, and another one follows if that is not enough.
func (k *Keeper) collect(ctx context.Context, path string, images []*criv1.Image, need uint64) error {
	known, listedAt, err := k.facts(ctx, images)
	if err != nil {
		return err
	}
	gone := map[ids.ImageID]bool{}
	remove := func(chosen []imagegc.Image, why string) (errs []error) {
		for _, img := range chosen {
			gone[img.ID] = true
			errs = append(errs, k.remove(ctx, img, known.byID[img.ID], listedAt, why))
		}
		return errs
	}
	left := func() []imagegc.Image {
		return slices.DeleteFunc(slices.Clone(known.images), func(i imagegc.Image) bool { return gone[i.ID] })
	}
	errs := remove(imagegc.Aged(k.cfg.Policy, left(), listedAt), "it was not used for the maximum age")
	if need == 0 {
		return errors.Join(errs...)
	}
	before, err := statfs(path)
	if err != nil {
		return err
	}
	goal, disk := imagegc.Short(k.cfg.Policy, before), before
	var found uint64
	for short := goal; short > 0; {
		chosen, bytes := imagegc.Choose(k.cfg.Policy, left(), short, listedAt)
		errs = append(errs, remove(chosen, "its file system is full")...)
		found += bytes
		after, err := statfs(path)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		// A runtime that frees later shows nothing here; then the sizes have to do, as with a kubelet.
		measured := after.Available > disk.Available
		disk, short = after, imagegc.Short(k.cfg.Policy, after)
		if bytes == 0 || !measured {
			break
		}
	}
	if freed := disk.Available - min(before.Available, disk.Available); imagegc.Short(k.cfg.Policy, disk) > 0 && (found < goal || freed > 0) {
		errs = append(errs, &tooFew{wanted: goal, found: min(found, max(freed, 0))})
	}
	return errors.Join(errs...)
}

// remove removes one image, unless somebody has begun to use it since the containers were listed.
func (k *Keeper) remove(ctx context.Context, img imagegc.Image, listed *criv1.Image, listedAt time.Time, why string) error {
	end, ok := k.reserve(names(listed), listedAt)
	if !ok {
		return nil
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	if _, err := k.cfg.Runtime.Images.RemoveImage(ctx, &criv1.RemoveImageRequest{Image: &criv1.ImageSpec{Image: string(img.ID)}}); err != nil {
		return fmt.Errorf("remove image %s %v: %w", img.ID, listed.RepoTags, err)
	}
	k.cfg.Log.Info("image removed", "id", img.ID, "tags", listed.RepoTags, "bytes", img.Size, "lastUsed", img.LastUsed, "why", why)
	return nil
}

// reserve keeps users away from an image that is removed, until end is called; false: there are users already.
func (k *Keeper) reserve(keys []string, listedAt time.Time) (end func(), ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if k.held[key] > 0 {
			return nil, false
		}
		if t := k.times[key]; t != nil && t.LastUsed.After(listedAt) {
			return nil, false
		}
	}
	done := make(chan struct{})
	for _, key := range keys {
		k.removing[key] = done
	}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, key := range keys {
			delete(k.removing, key)
		}
		close(done)
	}, true
}

// names are all by which an image is referred to.
func names(img *criv1.Image) []string {
	return slices.Concat([]string{img.Id}, img.RepoTags, img.RepoDigests)
}

// anyAged says that some image may have gone unused for the maximum age.
func (k *Keeper) anyAged(now time.Time) bool {
	if k.cfg.Policy.MaxAge <= 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.times {
		if now.Sub(t.FirstSeen) >= k.cfg.Policy.MaxAge && now.Sub(t.LastUsed) >= k.cfg.Policy.MaxAge {
			return true
		}
	}
	return false
}
