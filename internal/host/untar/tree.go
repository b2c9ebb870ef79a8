package untar

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// inside is the name of an entry of a Tree in the directory that is unpacked; false: it is not in that.
func (u *unpacker) inside(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "/"+u.opts.Tree.Below)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return path.Clean("/" + rest), true
}

// other is about an entry that is not in the directory of a Tree.
func (u *unpacker) other(h *tar.Header, data io.Reader) (err error) {
	if u.opts.Tree.Other == nil {
		return fmt.Errorf("it is not in %s/: %w", u.opts.Tree.Below, errdefs.ErrInvalidArgument)
	}
	u.done, err = u.opts.Tree.Other(h, data)
	return err
}

// ofTree refuses what a Tree does not have, and has links name what they are to.
func (u *unpacker) ofTree(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeLink:
		target, ok := u.inside(path.Clean("/" + h.Linkname))
		if !ok {
			return fmt.Errorf("a link to %s, which is not in %s/: %w", quote(h.Linkname), u.opts.Tree.Below, errdefs.ErrInvalidArgument)
		}
		h.Linkname = target
	case tar.TypeChar, tar.TypeBlock:
		if h.Typeflag == tar.TypeBlock || h.Devmajor != 0 || h.Devminor != 0 {
			return fmt.Errorf("it is the device %d:%d of a machine: leave it out of the archive: %w", h.Devmajor, h.Devminor, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// itself is about the entry of the directory that is unpacked.
func (u *unpacker) itself(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return fmt.Errorf("it is no directory: %w", errdefs.ErrInvalidArgument)
	}
	fd, err := u.openDir("/", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // nothing was written to it
	u.dirs = append(u.dirs, dirTime{path: "/", times: times(h)})
	return u.attributes(fd, h)
}

// hole is the smallest part of a file that becomes a hole.
const hole = 4 << 10

var zeros [hole]byte

// writeSparse writes a file of a Tree, without its zeros.
func (u *unpacker) writeSparse(fd int, size int64, data io.Reader) error {
	for done := int64(0); done < size; {
		if u.unasked >= roomBytes {
			if err := u.room(); err != nil {
				return err
			}
		}
		n, err := io.ReadFull(data, u.buf[:min(int64(len(u.buf)), size-done)])
		if n == 0 && err != nil {
			return u.readError(unexpected(err))
		}
		if werr := u.writeData(fd, u.buf[:n], done); werr != nil {
			return werr
		}
		if err != nil {
			return u.readError(unexpected(err))
		}
		done += int64(n)
	}
	return unix.Ftruncate(fd, size)
}

// writeData writes a part of a file but for the blocks of zeros in it.
func (u *unpacker) writeData(fd int, part []byte, at int64) error {
	for len(part) > 0 {
		n := min(hole, len(part))
		if bytes.Equal(part[:n], zeros[:n]) {
			part, at = part[n:], at+int64(n)
			continue
		}
		for n < len(part) && !bytes.Equal(part[n:min(n+hole, len(part))], zeros[:min(hole, len(part)-n)]) {
			n = min(n+hole, len(part))
		}
		if err := u.wrote(n); err != nil {
			return err
		}
		u.unasked += int64(n)
		for p := part[:n]; len(p) > 0; {
			w, err := unix.Pwrite(fd, p, at)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return fmt.Errorf("writing: %w", err)
			}
			p, part, at = p[w:], part[w:], at+int64(w)
		}
	}
	return nil
}
