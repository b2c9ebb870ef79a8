// Package room looks after what is left of the file system that images go to: a pull or a load ends before the node has no room for its own state.
package room

import (
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// What pulls and loads leave free on the file system of the store: a node whose disk is full cannot write its own state. It is a part of
// the disk, so that small disks can be used, and at most so much.
const (
	keepShare  = 20
	keepBytes  = 1 << 30
	keepInodes = 64 << 10
)

// Room is what is left of the file system of a directory.
type Room struct{ Dir string }

// Check fails when less is free than is to be kept. It is asked about every MiB.
func (r Room) Check() error { return r.Need(0) }

// Need fails when so many more bytes would not leave what is to be kept.
func (r Room) Need(more int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(r.Dir, &st); err != nil {
		return fmt.Errorf("the file system of %s: %w", r.Dir, err)
	}
	return r.judge(&st, more)
}

func (r Room) judge(st *unix.Statfs_t, more int64) error {
	const remedy = "remove images (monopod image prune) or use a larger disk"
	block := uint64(st.Bsize) // a size
	free, keep := st.Bavail*block, min(st.Blocks*block/keepShare, keepBytes)
	switch {
	case free >= keep && free-keep >= uint64(more): // never negative
	case more > 0:
		return fmt.Errorf("%s are needed at least, and the file system of %s has %s free, of which %s are kept for the node: %s: %w",
			Size(uint64(more)), r.Dir, Size(free), Size(keep), remedy, errdefs.ErrResourceExhausted)
	default:
		return fmt.Errorf("the file system of %s has %s left, which are kept for the node: %s: %w", r.Dir, Size(free), remedy, errdefs.ErrResourceExhausted)
	}
	if keep := min(st.Files/keepShare, keepInodes); st.Files > 0 && st.Ffree < keep { // some file systems have as many inodes as they like
		return fmt.Errorf("the file system of %s has %d inodes left, which are kept for the node: %s: %w", r.Dir, st.Ffree, remedy, errdefs.ErrResourceExhausted)
	}
	return nil
}

// Size shows a number of bytes.
func Size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// Writer asks for room while it writes.
type Writer struct {
	io.Writer
	Room    Room
	unasked int
}

// AskEvery is how many bytes are written without asking for room.
const AskEvery = 1 << 20

func (g *Writer) Write(p []byte) (int, error) {
	if g.unasked += len(p); g.unasked >= AskEvery {
		g.unasked = 0
		if err := g.Room.Check(); err != nil {
			return 0, err
		}
	}
	return g.Writer.Write(p)
}
