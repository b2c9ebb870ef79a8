// Package decompress reads the bytes of layers and archives as the plain tars that they are, by libraries in this process, within a bounded
// memory; and it lets the stages of an unpack work side by side. It tells bad bytes (InvalidArgument) from the errors of who sends them
// (faults.Source).
package decompress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/semaphore"

	"monopod.dev/monopod/internal/image/faults"
)

// chunkSize is what goes from one stage of an unpack to the next at a time: it stays in a core's cache.
const chunkSize = 128 << 10

// chunksAhead is how many chunks a stage may be ahead of the next one.
const chunksAhead = 4

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// ReadAhead reads from another reader in a goroutine of its own, so that both sides work at the same time.
type ReadAhead struct {
	full    chan chunk
	stop    chan struct{}
	stopped sync.WaitGroup

	have []byte // of cur, what Read has not given yet
	cur  *[chunkSize]byte
	err  error
}

type chunk struct {
	buf *[chunkSize]byte
	n   int
	err error
}

// NewReadAhead starts to read. Close ends the goroutine; r must come to an end by itself then, or by being closed before.
func NewReadAhead(r io.Reader) *ReadAhead {
	ra := &ReadAhead{full: make(chan chunk, chunksAhead), stop: make(chan struct{})}
	ra.stopped.Go(func() { ra.fill(r) })
	return ra
}

func (ra *ReadAhead) fill(r io.Reader) {
	defer close(ra.full)
	for {
		c := chunk{buf: chunks.Get().(*[chunkSize]byte)}
		for c.n < chunkSize && c.err == nil {
			var n int
			n, c.err = r.Read(c.buf[c.n:])
			c.n += n
		}
		select {
		case ra.full <- c:
		case <-ra.stop:
			chunks.Put(c.buf)
			return
		}
		if c.err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (ra *ReadAhead) Read(p []byte) (int, error) {
	for len(ra.have) == 0 {
		if ra.cur != nil {
			chunks.Put(ra.cur)
			ra.cur = nil
		}
		if ra.err != nil {
			return 0, ra.err
		}
		c, ok := <-ra.full
		if !ok {
			return 0, io.ErrClosedPipe
		}
		ra.cur, ra.have, ra.err = c.buf, c.buf[:c.n], c.err
	}
	n := copy(p, ra.have)
	ra.have = ra.have[n:]
	return n, nil
}

// Close ends the goroutine and waits for it.
func (ra *ReadAhead) Close() {
	close(ra.stop)
	for c := range ra.full {
		chunks.Put(c.buf)
	}
	ra.stopped.Wait()
}

// PeekSize is how much is read at a time of what is decompressed.
const PeekSize = 64 << 10

// Open reads a layer, or an archive, as the plain tar that it is. What it is compressed with is told by its first bytes: there are
// images whose media type says something else. It is done in this process, by libraries: containerd's package would run the
// programs unpigz or igzip where the machine has them, which would then parse hostile input with all of our rights.
// The errors of r are told from those of its bytes when r is a faults.Source. A stream that needs much memory waits until windows has it;
// end gives it back, and must be called.
func Open(ctx context.Context, r io.Reader, windows *semaphore.Weighted) (plain io.Reader, end func(), err error) {
	in := bufio.NewReaderSize(r, PeekSize)
	head, err := in.Peek(10)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch compression.DetectCompression(head) {
	case compression.Gzip:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, badStream(err)
		}
		return classed{z}, func() {}, nil
	case compression.Zstd:
		frames := &zstdFrames{ctx: ctx, in: in, windows: windows}
		z, err := zstd.NewReader(frames, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, badStream(err)
		}
		return classed{z}, func() { z.Close(); frames.release() }, nil
	}
	return in, func() {}, nil
}

// maxTail is how much may follow the end of a tar: writers fill their last record with zeros, which is 10 KiB by default and at
// most some MiB.
const maxTail = 64 << 20

// Drain reads what follows the end of a tar: it belongs to the digest of a layer, and the checksum of a gzip stream is behind it.
func Drain(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxTail+1))
	if err == nil && n > maxTail {
		return fmt.Errorf("more than %d bytes follow the end of the tar: %w", maxTail, errdefs.ErrInvalidArgument)
	}
	return err
}

// classed gives the errors of a decompressor their class.
type classed struct{ io.Reader }

func (c classed) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = badStream(err)
	}
	return n, err
}

// badStream marks an error of a decompressor that is about the bytes it got, and not one that it passes on.
func badStream(err error) error {
	if faults.OfSource(err) || errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return fmt.Errorf("decompressing: %w: %w", err, errdefs.ErrInvalidArgument)
}
