package recipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// root is the directory of an unpacked layer. What is in it is not trusted: no name leads out of it.
type root struct {
	dir string
	fd  int
	buf []byte
}

func openRoot(dir string) (*root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("the directory of the layer: %s: %w: %w", dir, err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("the directory of the layer: %s: %w", dir, err)
	}
	return &root{dir: dir, fd: fd, buf: make([]byte, 256<<10)}, nil
}

func (r *root) close() { _ = unix.Close(r.fd) }

// open opens a regular file. A parent that is a symbolic link is followed within the root, as when the layer was unpacked.
func (r *root) open(name string) (*os.File, int64, error) {
	how := &unix.OpenHow{
		// A FIFO must not hang us, and is found out below.
		Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(r.fd, name, how)
	for errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) { // a rename somewhere kept ".." from being checked
		fd, err = unix.Openat2(r.fd, name, how)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO) {
		return nil, 0, fmt.Errorf("the file %q of the tar is not in %s: the same tar replaces it later, or somebody has removed it: %w: %w",
			name, r.dir, err, errdefs.ErrDataLoss)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the file %q in %s: %w", name, r.dir, err)
	}
	f := os.NewFile(uintptr(fd), name)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q in %s was a regular file of the tar and is one no more (%v): %w", name, r.dir, info.Mode().Type(), errdefs.ErrDataLoss)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// copyFile writes size bytes of a file: all of it, or some ranges.
func (r *root) copyFile(ctx context.Context, w io.Writer, name string, size int64, ranges []span) error {
	f, has, err := r.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if ranges == nil {
		if has != size {
			return fmt.Errorf("the file %q of the tar had %d bytes, in %s it has %d: %w", name, size, r.dir, has, errdefs.ErrDataLoss)
		}
		ranges = []span{{0, size}}
	}
	for _, s := range ranges {
		for s.n > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n, err := f.ReadAt(r.buf[:min(s.n, int64(len(r.buf)))], s.off)
			if n == 0 {
				return fmt.Errorf("the file %q in %s ends at %d, in the tar it had more: %w: %w", name, r.dir, s.off, err, errdefs.ErrDataLoss)
			}
			if _, err := w.Write(r.buf[:n]); err != nil {
				return err
			}
			s.off, s.n = s.off+int64(n), s.n-int64(n)
		}
	}
	return nil
}
