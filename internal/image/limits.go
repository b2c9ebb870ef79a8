package image

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

const (
	// maxLayersAtOnce is how many layers are fetched and unpacked at a time, by all pulls together, beside those that wait for a slow registry (turn.go).
	maxLayersAtOnce = 6
	// maxDocument is the largest manifest, index or configuration: they are read into memory. Registries take 4 MiB at most.
	maxDocument = 8 << 20
	// maxLayers is how many lower directories the kernel's overlay takes.
	maxLayers = 500
	// maxIndexes is how many indexes may lie within one another.
	maxIndexes = 4
)

// Limits of what an image may be once it is unpacked. They are no protection of the disk, which room is, but bound the time and the work
// that an image can cause. No user needs them to be settings: no registry known to us takes a layer of more than 200 GiB, and layers of
// model weights, which are the largest, hardly compress.
const (
	maxLayerBytes   = 256 << 30
	maxLayerEntries = 8 << 20
	maxImageBytes   = 1 << 40
	// maxLayerMemory is enough for 400,000 directories with paths of 100 bytes.
	maxLayerMemory = 64 << 20
)

// What pulls and loads leave free on the file system of the store: a node whose disk is full cannot write its own state. It is a part of
// the disk, so that small disks can be used, and at most so much.
const (
	keepShare  = 20
	keepBytes  = 1 << 30
	keepInodes = 64 << 10
)

// limits bounds what all pulls together do at a time, and what each image may be.
type limits struct {
	layers       *semaphore.Weighted
	patience     time.Duration       // with a download that has a turn and does not move
	windows      *semaphore.Weighted // bytes of zstd's windows
	layerBytes   int64
	layerEntries int
	layerMemory  int64
	imageBytes   int64
}

func newLimits() limits {
	return limits{layers: semaphore.NewWeighted(maxLayersAtOnce), patience: patience, windows: semaphore.NewWeighted(allZstdWindows), layerBytes: maxLayerBytes, layerEntries: maxLayerEntries,
		layerMemory: maxLayerMemory, imageBytes: maxImageBytes}
}

// room looks after what is left of the file system of a directory.
type room struct{ dir string }

// check fails when less is free than is to be kept. It is asked about every MiB.
func (r room) check() error { return r.need(0) }

// need fails when so many more bytes would not leave what is to be kept.
func (r room) need(more int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		return fmt.Errorf("the file system of %s: %w", r.dir, err)
	}
	return r.judge(&st, more)
}

func (r room) judge(st *unix.Statfs_t, more int64) error {
	const remedy = "remove images (monopod image prune) or use a larger disk"
	block := uint64(st.Bsize) //nolint:gosec // a size
	free, keep := st.Bavail*block, min(st.Blocks*block/keepShare, keepBytes)
	switch {
	case free >= keep && free-keep >= uint64(more): //nolint:gosec // never negative
	case more > 0:
		return fmt.Errorf("%s are needed at least, and the file system of %s has %s free, of which %s are kept for the node: %s: %w",
			size(uint64(more)), r.dir, size(free), size(keep), remedy, errdefs.ErrResourceExhausted)
	default:
		return fmt.Errorf("the file system of %s has %s left, which are kept for the node: %s: %w", r.dir, size(free), remedy, errdefs.ErrResourceExhausted)
	}
	if keep := min(st.Files/keepShare, keepInodes); st.Files > 0 && st.Ffree < keep { // some file systems have as many inodes as they like
		return fmt.Errorf("the file system of %s has %d inodes left, which are kept for the node: %s: %w", r.dir, st.Ffree, remedy, errdefs.ErrResourceExhausted)
	}
	return nil
}

// size shows a number of bytes.
func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// guarded asks for room while it writes.
type guarded struct {
	io.Writer
	room    room
	unasked int
}

// askEvery is how many bytes are written without asking for room.
const askEvery = 1 << 20

func (g *guarded) Write(p []byte) (int, error) {
	if g.unasked += len(p); g.unasked >= askEvery {
		g.unasked = 0
		if err := g.room.check(); err != nil {
			return 0, err
		}
	}
	return g.Writer.Write(p)
}

// imageMeter counts what all layers of an image have together.
type imageMeter struct {
	max  int64
	have atomic.Int64
}

// of counts what goes through r.
func (m *imageMeter) of(r io.Reader) io.Reader { return &metered{r, m} }

type metered struct {
	io.Reader
	image *imageMeter
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.image.have.Add(int64(n)) > m.image.max {
		return n, fmt.Errorf("the layers of the image have more than %s together: %w", size(uint64(m.image.max)), errdefs.ErrResourceExhausted) //nolint:gosec // positive
	}
	return n, err
}

// legible makes an error fit for events, logs and gRPC: one line of a bounded length that is UTF-8, whatever a registry or an archive
// has put into it.
func legible(err error) error {
	if err == nil {
		return nil
	}
	s := err.Error()
	if len(s) <= maxError && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0 {
		return err
	}
	return &plainError{err}
}

const maxError = 2 << 10

type plainError struct{ err error }

func (e *plainError) Error() string {
	s := e.err.Error()
	if len(s) > maxError {
		s = s[:maxError*3/4] + " [...] " + s[len(s)-maxError/4:]
	}
	return strings.Map(printable, strings.ToValidUTF8(s, "?"))
}

func (e *plainError) Unwrap() error { return e.err }
