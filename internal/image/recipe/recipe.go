package recipe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	digest "github.com/opencontainers/go-digest"
)

// Recipe is a recipe that has been read once, from its begin to its end.
type Recipe struct {
	// Size and Digest are those of the tar.
	Size   int64
	Digest digest.Digest
	file   string
}

// Path is where the recipe of the layer is that is unpacked in dir: beside it, so that it goes when the layer goes.
func Path(dir string) string { return filepath.Join(filepath.Dir(dir), "recipe") }

// Open reads a recipe. Errors: NotFound (there is none), DataLoss (it is damaged, or not complete), FailedPrecondition (the tar
// cannot be written again; the error says why).
func Open(file string) (*Recipe, error) {
	rec := &Recipe{file: file}
	ended := false
	refused := ""
	err := rec.each(func(it item) error {
		switch it.kind {
		case itemRefused:
			refused = string(it.bytes)
		case itemEnd:
			ended = true
			rec.Size, rec.Digest = it.n, digest.Digest(it.bytes)
		}
		return nil
	})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("the record of the layer's tar: %w: %w", err, errdefs.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("the record of the layer's tar %s: %w", file, err)
	case !ended || rec.Digest.Validate() != nil:
		return nil, fmt.Errorf("the record of the layer's tar %s has no end: %w", file, errdefs.ErrDataLoss)
	case refused != "":
		return nil, fmt.Errorf("the layer's tar cannot be written again: %s: %w", refused, errdefs.ErrFailedPrecondition)
	}
	return rec, nil
}

// WriteTar writes the tar, with the files of dir, the directory that it was unpacked into. An error of class DataLoss says that dir is
// not, or not any more, what the tar held; what has been written until then is of no use.
func (rec *Recipe) WriteTar(ctx context.Context, w io.Writer, dir string) error {
	root, err := openRoot(dir)
	if err != nil {
		return err
	}
	defer root.close()
	digester := rec.Digest.Algorithm().Digester()
	out := &counter{w: io.MultiWriter(w, digester.Hash())}
	err = rec.each(func(it item) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		switch it.kind {
		case itemBytes:
			_, err := out.Write(it.bytes)
			return err
		case itemZeros:
			return out.zeros(it.n)
		case itemFile:
			return root.copyFile(ctx, out, string(it.bytes), it.n, it.ranges)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if out.n != rec.Size || digester.Digest() != rec.Digest {
		return fmt.Errorf("the tar came out with %d bytes and the digest %s, it was %d bytes with %s: a file of %s has other contents than before: %w",
			out.n, digester.Digest(), rec.Size, rec.Digest, dir, errdefs.ErrDataLoss)
	}
	return nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

var noBytes [32 << 10]byte

func (c *counter) zeros(n int64) error {
	for n > 0 {
		k := min(n, int64(len(noBytes)))
		if _, err := c.Write(noBytes[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// item is one of the file. Its bytes are valid until the next one is read.
type item struct {
	kind   byte
	n      int64
	bytes  []byte // of a B; the name of an F; the reason of a U; the digest of an E
	ranges []span
}

// each reads the file from its begin, and calls f with each item.
func (rec *Recipe) each(f func(item) error) error {
	file, err := os.Open(rec.file)
	if err != nil {
		return err
	}
	defer file.Close()
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(file, head); err != nil || string(head) != magic {
		return fmt.Errorf("it is of another format, it should begin with %q: %w", magic, errdefs.ErrDataLoss)
	}
	z, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return err
	}
	defer z.Close()
	d := decoder{r: bufio.NewReaderSize(z, 64<<10)}
	for {
		it, err := d.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is damaged: %w: %w", err, errdefs.ErrDataLoss)
		}
		if err := f(it); err != nil {
			return err
		}
	}
}

type decoder struct {
	r   *bufio.Reader
	buf []byte
}

// next reads an item. It is io.EOF only between two.
func (d *decoder) next() (it item, err error) {
	if it.kind, err = d.r.ReadByte(); err != nil {
		return it, err
	}
	defer func() {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}()
	switch it.kind {
	case itemBytes:
		it.bytes, err = d.string(maxBytes)
	case itemRefused:
		it.bytes, err = d.string(maxName)
	case itemZeros:
		it.n, err = d.number(math.MaxInt64)
	case itemEnd:
		if it.n, err = d.number(math.MaxInt64); err == nil {
			it.bytes, err = d.string(256)
		}
	case itemFile:
		if it.n, err = d.number(math.MaxInt64); err != nil {
			return it, err
		}
		if it.bytes, err = d.string(maxName); err != nil {
			return it, err
		}
		it.ranges, err = d.spans()
	default:
		err = fmt.Errorf("an item of kind %q", it.kind)
	}
	return it, err
}

func (d *decoder) spans() ([]span, error) {
	k, err := d.number(maxSpans)
	if err != nil || k == 0 {
		return nil, err
	}
	var out []span
	for range k {
		var s span
		if s.off, err = d.number(math.MaxInt64); err != nil {
			return nil, err
		}
		if s.n, err = d.number(math.MaxInt64); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (d *decoder) number(most uint64) (int64, error) {
	n, err := binary.ReadUvarint(d.r)
	if err == nil && n > most {
		err = fmt.Errorf("the number %d, at most %d is possible", n, most)
	}
	return int64(n), err // at most MaxInt64
}

func (d *decoder) string(most uint64) ([]byte, error) {
	n, err := d.number(most)
	if err != nil {
		return nil, err
	}
	if int64(cap(d.buf)) < n {
		d.buf = make([]byte, n)
	}
	d.buf = d.buf[:n]
	_, err = io.ReadFull(d.r, d.buf)
	return d.buf, err
}
