// Package imagegc decides which images are removed to make room. It is pure: what is true comes in, what shall go comes out.
//
// The rules are a kubelet's (kubernetes.io/docs/concepts/architecture/garbage-collection, "Container image lifecycle"):
// above the high threshold images go until the low one is met, the least recently used first; one that is pinned, in use or
// younger than the minimum age never goes. Apart from that, images that were not used for the maximum age go.
package imagegc

import (
	"cmp"
	"slices"
	"time"

	"monopod.dev/monopod/internal/kit/ids"
)

// Policy says when images are removed.
type Policy struct {
	// High is the use of the file system, in per cent, at which images are removed, and Low the one at which that ends. 0 to 100;
	// with High 100 it never begins.
	High, Low int
	// MinAge is how long an image is left alone after it was first seen.
	MinAge time.Duration
	// MaxAge is how long an image may go unused before it is removed even if there is room; 0: for ever.
	MaxAge time.Duration
}

// Image is what is known of one image.
type Image struct {
	ID ids.ImageID
	// Size is what the runtime says that it takes, in bytes. Images that share layers count them each.
	Size uint64
	// Pinned is the runtime's advice to keep it.
	Pinned bool
	// Used: a container has it, in whatever state, as its image or as a volume, or is about to.
	Used bool
	// FirstSeen is when it was first seen on this node, LastUsed when it was in use last (zero: never).
	FirstSeen, LastUsed time.Time
}

// Disk is the state of the file system that images are on, in bytes.
type Disk struct{ Capacity, Available uint64 }

// UsedPercent is how much is used, rounded up; 0 of a file system without a size.
func (d Disk) UsedPercent() int {
	if d.Capacity == 0 {
		return 0
	}
	return 100 - int(min(d.Available, d.Capacity)*100/d.Capacity)
}

// Need is how many bytes have to be freed; 0: there is room.
func Need(p Policy, d Disk) uint64 {
	if p.High >= 100 || d.UsedPercent() < p.High {
		return 0
	}
	return Short(p, d)
}

// Short is how many bytes are missing to the low threshold.
func Short(p Policy, d Disk) uint64 {
	goal := d.Capacity * uint64(100-p.Low) / 100
	if goal <= d.Available {
		return 0
	}
	return goal - d.Available
}

// Aged are the images that go because they were not used for too long, the least recently used first. An image that was never
// used counts from when it was first seen.
func Aged(p Policy, images []Image, now time.Time) []Image {
	if p.MaxAge <= 0 {
		return nil
	}
	old := func(img Image) bool { return now.Sub(img.since()) >= p.MaxAge }
	return slices.DeleteFunc(removable(p, images, now), func(img Image) bool { return !old(img) })
}

// Choose picks the images to remove so that need bytes get free by the images' own sizes, in the order in which they go; bytes is
// what they are together, which is less than need when there are no more that may go.
func Choose(p Policy, images []Image, need uint64, now time.Time) (chosen []Image, bytes uint64) {
	for _, img := range removable(p, images, now) {
		if bytes >= need {
			break
		}
		chosen = append(chosen, img)
		bytes += img.Size
	}
	return chosen, bytes
}

// removable are those that may go, in the order in which they do: never used ones, then by their last use; in doubt the longest
// known first.
func removable(p Policy, images []Image, now time.Time) []Image {
	var may []Image
	for _, img := range images {
		if !img.Pinned && !img.Used && now.Sub(img.FirstSeen) >= p.MinAge {
			may = append(may, img)
		}
	}
	slices.SortStableFunc(may, func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return may
}

// since is since when the image was not used.
func (i Image) since() time.Time {
	if i.LastUsed.After(i.FirstSeen) {
		return i.LastUsed
	}
	return i.FirstSeen
}
