package recipe

import (
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
	digest "github.com/opencontainers/go-digest"
)

const magic = "monopod recipe 1\n"

// The items of the file; see the package's doc.
const (
	itemBytes   = 'B'
	itemZeros   = 'Z'
	itemFile    = 'F'
	itemRefused = 'U'
	itemEnd     = 'E'
)

const (
	// window is small, since headers repeat at once, and a node records many layers at a time.
	window   = 128 << 10
	maxBytes = 64 << 10 // of one B item
	maxName  = 1 << 20
	maxSpans = 1 << 20
)

// encoder writes items. The first error stays, and is told at the end.
type encoder struct {
	file    *os.File
	z       *zstd.Encoder
	item    []byte // one item under construction
	pending []byte // bytes that make up the next B item
	zeroRun int64  // zeros that follow pending
	err     error
}

func newEncoder(f *os.File) (*encoder, error) {
	if _, err := f.WriteString(magic); err != nil {
		return nil, err
	}
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	return &encoder{file: f, z: z, pending: make([]byte, 0, maxBytes)}, nil
}

func (e *encoder) write(p []byte) {
	if e.err == nil {
		_, e.err = e.z.Write(p)
	}
}

// flush ends the bytes and the zeros that are pending: one of them at most is.
func (e *encoder) flush() {
	if len(e.pending) > 0 {
		e.item = binary.AppendUvarint(append(e.item[:0], itemBytes), uint64(len(e.pending)))
		e.write(e.item)
		e.write(e.pending)
		e.pending = e.pending[:0]
	}
	if e.zeroRun > 0 {
		e.item = binary.AppendUvarint(append(e.item[:0], itemZeros), uint64(e.zeroRun))
		e.write(e.item)
		e.zeroRun = 0
	}
}

func (e *encoder) bytes(p []byte) {
	if e.zeroRun > 0 {
		e.flush()
	}
	for len(p) > 0 {
		if len(e.pending) == maxBytes {
			e.flush()
		}
		n := min(len(p), maxBytes-len(e.pending))
		e.pending = append(e.pending, p[:n]...)
		p = p[n:]
	}
}

func (e *encoder) zeros(n int64) {
	if len(e.pending) > 0 {
		e.flush()
	}
	e.zeroRun += n
}

func (e *encoder) payload(size int64, name string, ranges []span) {
	e.flush()
	e.item = binary.AppendUvarint(append(e.item[:0], itemFile), uint64(size))
	e.item = binary.AppendUvarint(e.item, uint64(len(name)))
	e.item = append(e.item, name...)
	e.item = binary.AppendUvarint(e.item, uint64(len(ranges)))
	for _, r := range ranges {
		e.item = binary.AppendUvarint(e.item, uint64(r.off))
		e.item = binary.AppendUvarint(e.item, uint64(r.n))
	}
	e.write(e.item)
}

func (e *encoder) text(kind byte, s string) {
	e.item = binary.AppendUvarint(append(e.item[:0], kind), uint64(len(s)))
	e.write(append(e.item, s...))
}

func (e *encoder) refused(reason string) {
	e.flush()
	e.text(itemRefused, reason)
}

func (e *encoder) end(total int64, d digest.Digest) {
	e.flush()
	e.item = binary.AppendUvarint(append(e.item[:0], itemEnd), uint64(total))
	e.item = binary.AppendUvarint(e.item, uint64(len(d)))
	e.write(append(e.item, d...))
}

func (e *encoder) close() error {
	return errors.Join(e.err, e.z.Close(), e.file.Close())
}

// abort closes the file without the end of the stream.
func (e *encoder) abort() error {
	e.z.Reset(io.Discard)
	return errors.Join(e.z.Close(), e.file.Close())
}
