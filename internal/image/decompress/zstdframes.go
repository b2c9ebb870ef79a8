package decompress

import (
	"bufio"
	"context"
	"fmt"
	"math"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/semaphore"

	"monopod.dev/monopod/internal/image/faults"
)

// How much memory zstd streams may ask for: one alone as much as zstd's own command grants, and all those with large windows that are read
// at a time no more than that together. One with a window of the usual size (levels up to 19 have no larger one) waits for no other.
const (
	maxZstdWindow   = 128 << 20
	usualZstdWindow = 8 << 20
	allZstdWindows  = maxZstdWindow
)

// NewWindows is the memory, in bytes, for the windows of all zstd streams that are read at a time.
func NewWindows() *semaphore.Weighted { return semaphore.NewWeighted(allZstdWindows) }

// zstdFrames passes a zstd stream on, and sees to it before each frame that there is memory for its window (RFC 8878, section 3.1.1): a stream may begin with small
// frames, as those of zstd:chunked do, and go on with large ones. What is no frame is passed on as it is: the decompressor says what is wrong with it.
type zstdFrames struct {
	ctx     context.Context
	in      *bufio.Reader
	windows *semaphore.Weighted
	held    int64 // bytes of windows

	left     int64 // bytes to pass on until the next header
	inFrame  bool  // that is a block's
	checksum bool  // the frame ends in one
	err      error
}

// checksumSize and blockHeaderSize are those of the RFC.
const (
	checksumSize    = 4
	blockHeaderSize = 3
)

// Read implements io.Reader.
func (z *zstdFrames) Read(p []byte) (int, error) {
	if z.left == 0 && z.err == nil {
		z.err = z.next()
	}
	if z.err != nil {
		return 0, z.err
	}
	n, err := z.in.Read(p[:min(int64(len(p)), z.left)])
	z.left -= int64(n)
	return n, err
}

// next looks at the header that comes, and lets it pass with what it is of.
func (z *zstdFrames) next() error {
	if z.inFrame {
		return z.nextBlock()
	}
	head, err := z.in.Peek(zstd.HeaderMaxSize) // an error comes again
	if len(head) == 0 {
		return err
	}
	var h zstd.Header
	if h.Decode(head) != nil {
		z.left = math.MaxInt64
		return z.grant(maxZstdWindow)
	}
	z.left = int64(h.HeaderSize)
	if h.Skippable {
		z.left += int64(h.SkippableSize)
		return nil
	}
	z.inFrame, z.checksum = true, h.HasCheckSum
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	return z.grant(window)
}

// nextBlock is next within a frame.
func (z *zstdFrames) nextBlock() error {
	head, err := z.in.Peek(blockHeaderSize)
	if len(head) < blockHeaderSize {
		z.left = math.MaxInt64
		if len(head) == 0 {
			return err
		}
		return nil
	}
	const last, rle = 1, 1
	header := int64(head[0]) | int64(head[1])<<8 | int64(head[2])<<16
	size := header >> 3
	if header>>1&3 == rle {
		size = 1 // the byte that it repeats
	}
	z.left = blockHeaderSize + size
	if header&last != 0 {
		z.inFrame = false
		if z.checksum {
			z.left += checksumSize
		}
	}
	return nil
}

// grant waits until there is memory for a window. What is held for the frame before is given up first: nobody waits who holds some.
func (z *zstdFrames) grant(window uint64) error {
	switch {
	case window > maxZstdWindow:
		return fmt.Errorf("its zstd window of %d bytes is larger than the %d that may be: compress it with a smaller one (zstd --long=27 at most): %w", window, maxZstdWindow, errdefs.ErrInvalidArgument)
	case window <= usualZstdWindow, int64(window) <= z.held: // bounded
		return nil
	}
	z.release()
	if err := z.windows.Acquire(z.ctx, int64(window)); err != nil { // bounded
		return &faults.SourceError{Err: context.Cause(z.ctx)}
	}
	z.held = int64(window) // bounded
	return nil
}

// release gives the memory back.
func (z *zstdFrames) release() {
	z.windows.Release(z.held)
	z.held = 0
}
