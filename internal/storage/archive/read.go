package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/host/untar"
)

// Limits bound what is taken from an archive.
type Limits struct {
	// Bytes is how much content its files may have, holes left out; Entries how many there may be.
	Bytes   int64
	Entries int
	// Room is asked now and then whether there is room for more; its error ends the reading.
	Room func() error
}

// maxMemory bounds what is remembered of an archive's directories.
const maxMemory = 256 << 20

// Reader reads an archive. Head is what it says of itself, which nobody has proved.
type Reader struct {
	Head Head
	r    *bufio.Reader
}

// packed are programs that unpack what begins with such bytes.
var packed = map[string]string{"\x1f\x8b": "gzip", "\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ": "xz", "BZh": "bzip2"}

// Open reads the begin of an archive.
//
// Errors of Open and of the methods: InvalidArgument (it is no archive, or a broken one), ResourceExhausted (a limit), else what the system says.
func Open(from io.Reader) (*Reader, error) {
	r := &Reader{r: bufio.NewReaderSize(from, 1<<20)}
	for magic, program := range packed {
		if begin, err := r.r.Peek(len(magic)); err == nil && string(begin) == magic {
			return nil, fmt.Errorf("it is packed: unpack it on the way, as in: %s -d < FILE | monopod volume import -: %w", program, errdefs.ErrInvalidArgument)
		}
	}
	h, err := tar.NewReader(r.r).Next()
	if err != nil {
		return nil, fmt.Errorf("it is no archive of a volume: %w", broken(err))
	}
	if h.Name != headName || h.Typeflag != tar.TypeReg {
		return nil, fmt.Errorf("it is no archive that 'monopod volume export' has written: it begins with %.100q, not with %s: %w", h.Name, headName, errdefs.ErrInvalidArgument)
	}
	if h.Size > maxDocument {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read: %w", headName, h.Size, maxDocument, errdefs.ErrInvalidArgument)
	}
	// The next reader of the tar goes on behind it.
	raw := make([]byte, h.Size+toBlock(h.Size))
	if _, err := io.ReadFull(r.r, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", headName, broken(err))
	}
	if err := parse(raw[:h.Size], &r.Head); err != nil {
		return nil, fmt.Errorf("%s: %w", headName, err)
	}
	if err := r.Head.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", headName, err)
	}
	return r, nil
}

// broken gives an error of the tar its class; one of who sends it stays as it is.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is cut short: %w", errdefs.ErrInvalidArgument)
	}
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	return err
}

// end reads the last document of an archive.
func end(h *tar.Header, data io.Reader, e **End) error {
	if h.Name != endName || h.Typeflag != tar.TypeReg || h.Size > maxDocument {
		return fmt.Errorf("it is none of an archive of a volume: %w", errdefs.ErrInvalidArgument)
	}
	raw, err := io.ReadAll(data)
	if err != nil {
		return broken(err)
	}
	*e = &End{}
	return parse(raw, *e)
}

// whole says whether all of an archive has come.
func (r *Result) whole(e *End) error {
	switch {
	case e == nil:
		return fmt.Errorf("the archive is cut short: it has no %s: %w", endName, errdefs.ErrInvalidArgument)
	case e.Entries != r.Entries:
		return fmt.Errorf("the archive has %d entries, and says that there are %d: %w", r.Entries, e.Entries, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Tree unpacks an archive into an empty directory, which is left half filled by an error.
func (r *Reader) Tree(ctx context.Context, dir string, l Limits) (result Result, err error) {
	var last *End
	got, err := untar.Apply(ctx, dir, r.r, untar.Options{
		MaxBytes: l.Bytes, MaxEntries: l.Entries, MaxMemory: maxMemory, Room: l.Room,
		Warn: func(msg string, args ...any) { result.leaveOut("%s", told(msg, args)) },
		Tree: &untar.Tree{Below: dataName, Other: func(h *tar.Header, data io.Reader) (bool, error) { return true, end(h, data, &last) }},
	})
	if err != nil {
		return result, err
	}
	result.Entries, result.Bytes = got.Entries, got.Bytes
	if last != nil {
		result.Entries-- // the document's
	}
	return result, result.whole(last)
}

// told is a warning on one line.
func told(msg string, args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		msg += fmt.Sprintf(", %v %v", args[i], args[i+1])
	}
	return msg
}

// Device writes the content of a block device to one of so many bytes that has nothing but zeros.
func (r *Reader) Device(ctx context.Context, to *os.File, size int64) (result Result, err error) {
	tr := tar.NewReader(r.r)
	h, err := tr.Next()
	if err != nil {
		return result, broken(err)
	}
	if h.Name != deviceName || h.Typeflag != tar.TypeReg {
		return result, fmt.Errorf("entry %.100q is not the content of a block device: %w", h.Name, errdefs.ErrInvalidArgument)
	}
	if h.Size > size {
		return result, fmt.Errorf("the archive has a block device of %d bytes, and the new one has %d: %w", h.Size, size, errdefs.ErrResourceExhausted)
	}
	if result.Bytes, err = copyData(ctx, to, tr); err != nil {
		return result, broken(err)
	}
	result.Entries = 1
	var last *End
	if h, err = tr.Next(); err == nil {
		err = end(h, tr, &last)
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return result, broken(err)
	}
	return result, result.whole(last)
}

// copyData writes what comes but for blocks of zeros, and returns how much it has written.
func copyData(ctx context.Context, to *os.File, from io.Reader) (written int64, err error) {
	part, zeros := make([]byte, 256<<10), make([]byte, 256<<10)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return written, err
		}
		n, err := io.ReadFull(from, part)
		if n > 0 && !bytes.Equal(part[:n], zeros[:n]) {
			if _, err := to.WriteAt(part[:n], at); err != nil {
				return written, err
			}
			written += int64(n)
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return written, nil
		case errors.Is(err, io.ErrUnexpectedEOF): // the last part, or the archive's end: what follows tells
			return written, nil
		case err != nil:
			return written, err
		}
	}
}
