package imagekeep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/kit/ids"
)

// list lists the images, notes those that were not seen before, and forgets those that are gone.
func (k *Keeper) list(ctx context.Context) ([]*criv1.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, cri.QueryTimeout)
	defer cancel()
	begun := time.Now()
	resp, err := k.cfg.Runtime.Images.ListImages(ctx, &criv1.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("CRI ListImages: %w", err)
	}
	here := map[string]bool{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, img := range resp.Images {
		t := k.times[img.Id]
		if t == nil {
			t = &times{FirstSeen: begun}
			k.times[img.Id] = t
			k.changed = true
		}
		here[img.Id] = true
		// What was known by a name only belongs to the image that has it now.
		for _, name := range names(img)[1:] {
			if by := k.times[name]; by != nil {
				t.FirstSeen = earliest(t.FirstSeen, by.FirstSeen)
				t.LastUsed = latest(t.LastUsed, by.LastUsed)
				delete(k.times, name)
				k.changed = true
			}
		}
	}
	for id, t := range k.times {
		// One that was pulled while the list was on its way stays.
		if !here[id] && t.LastUsed.Before(begun) && t.FirstSeen.Before(begun) {
			delete(k.times, id)
			k.changed = true
		}
	}
	return resp.Images, nil
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// facts are what a decision depends on.
type facts struct {
	images []imagegc.Image
	byID   map[ids.ImageID]*criv1.Image
}

// facts gathers them; at is when it was asked which containers there are.
func (k *Keeper) facts(ctx context.Context, listed []*criv1.Image) (f facts, at time.Time, err error) {
	at = time.Now()
	used, err := k.used(ctx)
	if err != nil {
		return facts{}, at, err
	}
	f.byID = map[ids.ImageID]*criv1.Image{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, img := range listed {
		t := k.times[img.Id]
		if t == nil {
			continue // not possible: list has made it
		}
		fact := imagegc.Image{ID: ids.ImageID(img.Id), Size: img.Size, Pinned: img.Pinned, FirstSeen: t.FirstSeen}
		for _, name := range names(img) {
			fact.Used = fact.Used || used[name] || k.held[name] > 0
		}
		if fact.Used {
			t.LastUsed, k.changed = latest(t.LastUsed, at), true
		}
		fact.LastUsed = t.LastUsed
		f.images = append(f.images, fact)
		f.byID[fact.ID] = img
	}
	return f, at, nil
}

// used are the ids and names of the images that containers have, in whatever state they are: as their own, and as volumes.
func (k *Keeper) used(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, cri.QueryTimeout)
	defer cancel()
	resp, err := k.cfg.Runtime.ListContainers(ctx, &criv1.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("CRI ListContainers: %w", err)
	}
	used := map[string]bool{}
	add := func(name string) {
		if name != "" {
			used[name], used[canonical(name)] = true, true
		}
	}
	for _, c := range resp.Containers {
		add(c.ImageId)
		add(c.ImageRef)
		add(c.GetImage().GetImage())
		st, err := k.cfg.Runtime.ContainerStatus(ctx, &criv1.ContainerStatusRequest{ContainerId: c.Id})
		if status.Code(err) == codes.NotFound {
			continue // removed since; it counts as used this time
		}
		if err != nil {
			return nil, fmt.Errorf("CRI ContainerStatus of %s: %w", c.Id, err)
		}
		for _, m := range st.GetStatus().GetMounts() {
			add(m.GetImage().GetImage())
			add(m.GetImage().GetImageRef())
		}
	}
	return used, nil
}

// stored is the file's content.
type stored struct {
	// Version is 1.
	Version int               `json:"version"`
	Images  map[string]*times `json:"images"`
}

// load reads the file; nothing where there is none.
func load(path string) (map[string]*times, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]*times{}, nil
	}
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	if s.Version != 1 {
		return nil, fmt.Errorf("it is of version %d, this monopod reads version 1", s.Version)
	}
	read := map[string]*times{}
	for id, t := range s.Images {
		if t != nil {
			read[id] = t
		}
	}
	return read, nil
}

// save writes the file when something has changed.
func (k *Keeper) save() {
	k.mu.Lock()
	if !k.changed {
		k.mu.Unlock()
		return
	}
	k.changed = false
	data, err := json.Marshal(stored{Version: 1, Images: k.times})
	k.mu.Unlock()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(k.cfg.File), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(k.cfg.File, data, 0o600)
	}
	if err == nil {
		return
	}
	k.cfg.Log.Warn("when images were used is not written down; it is tried again", "file", k.cfg.File, "error", err)
	k.mu.Lock()
	k.changed = true
	k.mu.Unlock()
}
