package untar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	// pathCost is what a directory takes of Options.MaxMemory beside its path.
	pathCost = 64
	// roomBytes and roomEntries are how often Options.Room is asked: after so much was written.
	roomBytes   = 1 << 20
	roomEntries = 64
	// treeEntry is what an entry of a Tree may take of the tar beside its data.
	treeEntry = 4 << 10
	// maxWarnings is how many things that are left out are told one by one.
	maxWarnings = 8
)

// input is the tar as it comes in. It knows whose fault an error is, and it ends a tar that is too long, whatever its bytes are: payload,
// headers, or neither.
type input struct {
	r    io.Reader
	max  int64 // 0 is none
	read int64
	err  error // of r, or that it is too long

	tooLong func(at string) error
}

func (in *input) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.r.Read(p)
	in.read += int64(n)
	switch {
	case in.max > 0 && in.read > in.max:
		in.err = in.tooLong("")
		return n, in.err
	case err != nil && err != io.EOF:
		in.err = err
	}
	return n, err
}

// what is unpacked, for people.
func (u *unpacker) what() string {
	if u.opts.Tree != nil {
		return "archive"
	}
	return "layer"
}

func (u *unpacker) tooLong(at string) error {
	if u.opts.Tree != nil {
		return fmt.Errorf("the archive has more than the %d bytes that there is room for%s: %w", u.opts.MaxBytes, at, errdefs.ErrResourceExhausted)
	}
	return fmt.Errorf("the layer has more than %d bytes unpacked%s; an image of so much data needs several layers: %w", u.opts.MaxBytes, at, errdefs.ErrResourceExhausted)
}

// wrote counts what is written of a Tree.
func (u *unpacker) wrote(n int) error {
	if u.result.Bytes += int64(n); u.opts.MaxBytes > 0 && u.result.Bytes > u.opts.MaxBytes {
		return u.tooLong("")
	}
	return nil
}

// readError tells an error of the tar from one of the reader below it, which stays as it is.
func (u *unpacker) readError(err error) error {
	if u.in.err != nil {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("the tar is cut short: %w: %w", io.ErrUnexpectedEOF, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
}

// tarsFault are the errors by which a system refuses what only the tar can have asked for: names and links that cannot be.
var tarsFault = []error{unix.EINVAL, unix.ENAMETOOLONG, unix.ELOOP, unix.ENOTDIR, unix.ENOENT, unix.EEXIST, unix.EISDIR, unix.EILSEQ,
	unix.E2BIG, unix.ERANGE, unix.EMLINK, unix.EXDEV}

// classify gives what the system says its class, where the layer is wrong and not the system.
func classify(err error) error {
	if errdefs.Resolve(err) != errdefs.ErrUnknown {
		return err
	}
	for _, f := range tarsFault {
		if errors.Is(err, f) {
			return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
	}
	return err
}

func (u *unpacker) count(h *tar.Header) error {
	if h.Size < 0 {
		return fmt.Errorf("entry %s has the size %d: %w", quote(h.Name), h.Size, errdefs.ErrInvalidArgument)
	}
	u.result.Entries++
	if u.opts.MaxEntries > 0 && u.result.Entries > u.opts.MaxEntries {
		if u.opts.Tree != nil {
			return fmt.Errorf("the archive has more than the %d files that there is room for: %w", u.opts.MaxEntries, errdefs.ErrResourceExhausted)
		}
		return fmt.Errorf("the layer has more than %d entries; an image of so many files needs several layers: %w", u.opts.MaxEntries, errdefs.ErrResourceExhausted)
	}
	switch {
	case u.opts.Tree != nil:
		if h.Size > maxHoles-u.logical {
			return fmt.Errorf("the archive has files of more than %d bytes, holes included (at entry %s, of %d): %w", int64(maxHoles), quote(h.Name), h.Size, errdefs.ErrResourceExhausted)
		}
		u.logical += h.Size
	case u.opts.MaxBytes > 0 && h.Size > u.opts.MaxBytes-u.result.Bytes:
		return u.tooLong(fmt.Sprintf(" (at entry %s, of %d)", quote(h.Name), h.Size))
	default:
		u.result.Bytes += h.Size
	}
	if u.result.Entries%roomEntries == 0 {
		return u.room()
	}
	return nil
}

func (u *unpacker) room() error {
	u.unasked = 0
	if u.opts.Room == nil {
		return nil
	}
	return u.opts.Room()
}

// remember counts what is kept of a directory until the end.
func (u *unpacker) remember(p string) error {
	if u.remembered += int64(len(p)) + pathCost; u.opts.MaxMemory > 0 && u.remembered > u.opts.MaxMemory {
		return fmt.Errorf("the %s has too many directories: their paths take more than %d bytes: %w", u.what(), u.opts.MaxMemory, errdefs.ErrResourceExhausted)
	}
	return nil
}

// warn tells of something that is left out. A layer may have millions of such things: all but the first ones are only counted.
func (u *unpacker) warn(msg string, args ...any) {
	if u.opts.Warn == nil {
		return
	}
	if u.warned++; u.warned <= maxWarnings {
		u.opts.Warn(msg, args...)
	}
}

// quote shows a name of the tar, which may have a million bytes.
func quote(s string) string {
	const most = 256
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
}
