package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/semaphore"
)

// chunkSize is what goes from one stage of an unpack to the next at a time: it stays in a core's cache.
const chunkSize = 128 << 10

// chunksAhead is how many chunks a stage may be ahead of the next one.
const chunksAhead = 4

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// readAhead reads from another reader in a goroutine of its own, so that both sides work at the same time.
type readAhead struct {
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

// newReadAhead starts to read. Close ends the goroutine; r must come to an end by itself then, or by being closed before.
func newReadAhead(r io.Reader) *readAhead {
	ra := &readAhead{full: make(chan chunk, chunksAhead), stop: make(chan struct{})}
	ra.stopped.Go(func() { ra.fill(r) })
	return ra
}

func (ra *readAhead) fill(r io.Reader) {
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
func (ra *readAhead) Read(p []byte) (int, error) {
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
func (ra *readAhead) Close() {
	close(ra.stop)
	for c := range ra.full {
		chunks.Put(c.buf)
	}
	ra.stopped.Wait()
}

// checkLayerType refuses what is no tar, compressed or not: encrypted layers, and file system images.
func checkLayerType(mediaType string) error {
	base, suffix, _ := strings.Cut(mediaType, "+")
	switch base {
	case "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.nondistributable.v1.tar",
		images.MediaTypeDockerSchema2Layer, images.MediaTypeDockerSchema2LayerForeign,
		images.MediaTypeDockerSchema2LayerGzip, images.MediaTypeDockerSchema2LayerForeignGzip, images.MediaTypeDockerSchema2LayerZstd:
		if suffix == "" || suffix == "gzip" || suffix == "zstd" {
			return nil
		}
	}
	return fmt.Errorf("media type %q is no layer that can be unpacked (a tar, plain or with gzip or zstd): %w",
		mediaType, errdefs.ErrInvalidArgument)
}

// peekSize is how much is read at a time of what is decompressed.
const peekSize = 64 << 10

// decompress reads a layer, or an archive, as the plain tar that it is. What it is compressed with is told by its first bytes: there are
// images whose media type says something else. It is done in this process, by libraries: containerd's package would run the
// programs unpigz or igzip where the machine has them, which would then parse hostile input with all of our rights.
// The errors of r are told from those of its bytes when r is a source. A stream that needs much memory waits until windows has it;
// end gives it back, and must be called.
func decompress(ctx context.Context, r io.Reader, windows *semaphore.Weighted) (plain io.Reader, end func(), err error) {
	in := bufio.NewReaderSize(r, peekSize)
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

// drain reads what follows the end of a tar: it belongs to the digest of a layer, and the checksum of a gzip stream is behind it.
func drain(r io.Reader) error {
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
	var passed *sourceError
	if errors.As(err, &passed) || errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return fmt.Errorf("decompressing: %w: %w", err, errdefs.ErrInvalidArgument)
}

// source marks the errors of the reader that a layer or an archive comes from, so that they are told from those of bad bytes.
type source struct{ io.Reader }

type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

func (s source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = &sourceError{err}
	}
	return n, err
}
