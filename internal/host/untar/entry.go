package untar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Names by which a layer's tar removes what is in the layers below (OCI image specification, layer.md).
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// opaqueXattr makes the overlay hide what the layers below have in a directory.
const opaqueXattr = "trusted.overlay.opaque"

const xattrRecord = "SCHILY.xattr."

// entry unpacks one entry of the tar.
func (u *unpacker) entry(h *tar.Header, data io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	// The name is relative to the layer whatever it says, and ".." does not lead out of it.
	name := path.Clean("/" + h.Name)
	if u.opts.Tree != nil {
		inside, ok := u.inside(name)
		if !ok {
			return u.other(h, data)
		}
		h.Name, name = inside, inside
		if err := u.ofTree(h); err != nil {
			return err
		}
	}
	if name == "/" && u.opts.Tree == nil {
		return nil // the layer's own directory stays as the snapshot has it
	}
	if h.Uid < 0 || h.Gid < 0 || h.Uid >= math.MaxUint32 || h.Gid >= math.MaxUint32 {
		return fmt.Errorf("owner %d:%d is no user and group: %w", h.Uid, h.Gid, errdefs.ErrInvalidArgument)
	}
	if name == "/" {
		return u.itself(h)
	}
	if len(name) >= unix.PathMax-u.dirLen {
		return fmt.Errorf("its path has %d bytes, at most %d are possible here: %w", len(name), unix.PathMax-u.dirLen-1, errdefs.ErrInvalidArgument)
	}
	parent, base := path.Split(name)
	dir, err := u.dir(parent)
	if err != nil {
		return err
	}
	if u.parentLen+1+len(base) >= unix.PathMax {
		return fmt.Errorf("its path, links resolved, has more than %d bytes: %w", unix.PathMax-u.dirLen-1, errdefs.ErrInvalidArgument)
	}
	if u.opts.Tree == nil && strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(dir, parent, base, h)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(dir, name, base, h)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(dir, base, h, data)
	case tar.TypeLink:
		return u.hardlink(dir, base, h)
	case tar.TypeSymlink:
		u.linked = true
		return u.node(dir, base, h, func() error { return unix.Symlinkat(h.Linkname, dir, base) })
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		mode, dev, err := deviceOf(h)
		if err != nil {
			return err
		}
		return u.node(dir, base, h, func() error { return unix.Mknodat(dir, base, mode, dev) })
	}
	return fmt.Errorf("its type is %q, which no %s has: %w", h.Typeflag, u.what(), errdefs.ErrInvalidArgument)
}

// replacing calls make, and once more after what has the name already is removed: a later entry replaces an earlier one.
func (u *unpacker) replacing(dir int, base string, make func() error) error {
	err := make()
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	// RemoveAll never follows a link below the path that it gets.
	if err := os.RemoveAll(fmt.Sprintf("/proc/self/fd/%d/%s", dir, base)); err != nil {
		return fmt.Errorf("replacing an earlier entry: %w", err)
	}
	err = make()
	u.forget() // the directory that is cached may lie below what was removed
	return err
}

// setOpaque makes a directory hide what the layers below have in it. at is the layer's root, or a directory of the layer
// with a name in it.
func setOpaque(at int, name string) error {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(at, name, &how)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // nothing was written to it
	return unix.Fsetxattr(fd, opaqueXattr, []byte{'y'}, 0)
}

func isWhiteout(dir int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func (u *unpacker) whiteout(dir int, parent, base string, h *tar.Header) error {
	if base == whiteoutOpaque {
		return setOpaque(u.root, "."+parent)
	}
	hidden := strings.TrimPrefix(base, whiteoutPrefix)
	if hidden == "" || hidden == "." || hidden == ".." {
		return fmt.Errorf("a whiteout must name what it removes: %w", errdefs.ErrInvalidArgument)
	}
	err := unix.Mknodat(dir, hidden, unix.S_IFCHR, 0)
	if errors.Is(err, unix.EEXIST) {
		// The layer itself has something of that name, and a whiteout is only for what lies below. A file hides that just
		// as well; a directory has to be told.
		if err = setOpaque(dir, hidden); errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	return unix.Fchownat(dir, hidden, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW)
}

func (u *unpacker) directory(dir int, name, base string, h *tar.Header) error {
	open := func() (int, error) {
		return unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	err := unix.Mkdirat(dir, base, 0o700)
	fd, opaque := -1, false
	switch {
	case err == nil:
		fd, err = open()
	case errors.Is(err, unix.EEXIST):
		if fd, err = open(); err == nil {
			delete(u.implied, name) // it has an entry after all
		} else if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			opaque = u.opts.Tree == nil && isWhiteout(dir, base)
			err = u.replacing(dir, base, func() (err error) {
				if err = unix.Mkdirat(dir, base, 0o700); err == nil {
					fd, err = open()
				}
				return err
			})
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) // nothing was written to it
	if opaque {
		if err := unix.Fsetxattr(fd, opaqueXattr, []byte{'y'}, 0); err != nil {
			return err
		}
	}
	u.dirs = append(u.dirs, dirTime{path: name, times: times(h)})
	if err := u.remember(name); err != nil {
		return err
	}
	return u.attributes(fd, h)
}

// writeBehind is how much of a large file is handed to the disk at a time while it is written: the sync at the end of a
// pull then finds little left to do.
const writeBehind = 8 << 20

func (u *unpacker) file(dir int, base string, h *tar.Header, data io.Reader) error {
	fd := -1
	err := u.replacing(dir, base, func() (err error) {
		fd, err = unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	if u.opts.Tree != nil {
		err = u.writeSparse(fd, h.Size, data)
	} else {
		err = u.write(fd, h.Size, data)
	}
	if err == nil {
		err = u.attributes(fd, h)
	}
	if err == nil {
		err = futimens(fd, times(h))
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return err
}

func (u *unpacker) write(fd int, size int64, data io.Reader) error {
	var done, handed int64
	for done < size {
		if u.unasked >= roomBytes {
			if err := u.room(); err != nil {
				return err
			}
		}
		n, err := io.ReadFull(data, u.buf[:min(int64(len(u.buf)), size-done)])
		if n == 0 && err != nil {
			return u.readError(unexpected(err))
		}
		for p := u.buf[:n]; len(p) > 0; {
			w, err := unix.Write(fd, p)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return fmt.Errorf("writing: %w", err)
			}
			p = p[w:]
		}
		if err != nil {
			return u.readError(unexpected(err))
		}
		done += int64(n)
		u.unasked += int64(n)
		if done-handed >= writeBehind || (done == size && size >= writeBehind/8) {
			_ = unix.SyncFileRange(fd, handed, done-handed, unix.SYNC_FILE_RANGE_WRITE) // only a hint
			handed = done
		}
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// hardlink makes another name for a file of the layer. The file's owner, mode and times are those of its first entry.
func (u *unpacker) hardlink(dir int, base string, h *tar.Header) error {
	parent, target := path.Split(path.Clean("/" + h.Linkname))
	if target == "" {
		return fmt.Errorf("a link to the %s itself: %w", u.what(), errdefs.ErrInvalidArgument)
	}
	from, err := u.openDir(parent, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("link to %s: %w", quote(h.Linkname), linkError(err))
	}
	defer unix.Close(from) // nothing was written to it
	var was, is unix.Stat_t
	if err := unix.Fstatat(from, target, &was, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("link to %s: %w", quote(h.Linkname), linkError(err))
	}
	if was.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Errorf("link to %s, which is a directory: %w", quote(h.Linkname), errdefs.ErrInvalidArgument)
	}
	if unix.Fstatat(dir, base, &is, unix.AT_SYMLINK_NOFOLLOW) == nil && is.Ino == was.Ino && is.Dev == was.Dev {
		return nil // a link to itself, or one that is there already
	}
	return u.replacing(dir, base, func() error { return unix.Linkat(from, target, dir, base, 0) })
}

// linkError gives a link to what is not there its class: the layer is wrong, not the system.
func linkError(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	return err
}

// node makes what has no descriptor to set attributes by: links and devices. What it sets them by is the name that it
// has just made, and where that is a link, it is not followed.
func (u *unpacker) node(dir int, base string, h *tar.Header, make func() error) error {
	if err := u.replacing(dir, base, make); err != nil {
		return err
	}
	if dir = u.parent; dir < 0 { // replacing has dropped it
		var err error
		if dir, err = u.dir(path.Dir(path.Clean("/"+h.Name)) + "/"); err != nil {
			return err
		}
	}
	if err := unix.Fchownat(dir, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("owner %d:%d: %w", h.Uid, h.Gid, err)
	}
	at := fmt.Sprintf("/proc/self/fd/%d/%s", dir, base)
	if err := u.xattrs(h, func(key string, value []byte) error { return unix.Lsetxattr(at, key, value, 0) }); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(dir, base, uint32(h.Mode&0o7777), 0); err != nil {
			return fmt.Errorf("mode %o: %w", h.Mode, err)
		}
	}
	t := times(h)
	return unix.UtimesNanoAt(dir, base, t[:], unix.AT_SYMLINK_NOFOLLOW)
}

// attributes sets what an entry says of a file or directory, but for its times. The order matters: a change of the owner
// drops set-user-ID bits and file capabilities.
func (u *unpacker) attributes(fd int, h *tar.Header) error {
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return fmt.Errorf("owner %d:%d: %w", h.Uid, h.Gid, err)
	}
	if err := u.xattrs(h, func(key string, value []byte) error { return unix.Fsetxattr(fd, key, value, 0) }); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, uint32(h.Mode&0o7777)); err != nil {
		return fmt.Errorf("mode %o: %w", h.Mode, err)
	}
	return nil
}

func (u *unpacker) xattrs(h *tar.Header, set func(key string, value []byte) error) error {
	for record, value := range h.PAXRecords {
		key, ok := strings.CutPrefix(record, xattrRecord)
		if !ok {
			continue
		}
		if !ofImage(key) && !(u.opts.Tree != nil && strings.HasPrefix(key, "trusted.overlay.")) {
			u.warn("an attribute of the "+u.what()+" is left out: it is the machine's to set", "entry", quote(h.Name), "attribute", quote(key))
			continue
		}
		err := set(key, []byte(value))
		special := h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir
		if errors.Is(err, unix.ENOTSUP) || (errors.Is(err, unix.EPERM) && special && strings.HasPrefix(key, "user.")) {
			u.warn("an attribute of the "+u.what()+" is left out: the file system cannot hold it", "entry", quote(h.Name), "attribute", quote(key))
			continue
		}
		if errors.Is(err, unix.ENOSPC) && u.room() == nil {
			return fmt.Errorf("attribute %s of %d bytes: the file system has no room for it among the attributes of one file: %w", quote(key), len(value), errdefs.ErrInvalidArgument)
		}
		if err != nil {
			return fmt.Errorf("attribute %s: %w", quote(key), err)
		}
	}
	return nil
}

// ofImage says whether an extended attribute is the image's to set: see the package's doc.
func ofImage(key string) bool {
	switch {
	case strings.HasPrefix(key, "trusted."):
		return false
	case strings.HasPrefix(key, "security."):
		return key == "security.capability" || key == "security.ima"
	}
	return true
}

func deviceOf(h *tar.Header) (mode uint32, dev int, err error) {
	mode = uint32(h.Mode & 0o7777)
	switch h.Typeflag {
	case tar.TypeFifo:
		return mode | unix.S_IFIFO, 0, nil
	case tar.TypeChar:
		mode |= unix.S_IFCHR
	case tar.TypeBlock:
		mode |= unix.S_IFBLK
	}
	// The kernel has 12 bits for the major number and 20 for the minor one; what is larger would become another device.
	if h.Devmajor < 0 || h.Devmajor >= 1<<12 || h.Devminor < 0 || h.Devminor >= 1<<20 {
		return 0, 0, fmt.Errorf("device number %d:%d is out of range: %w", h.Devmajor, h.Devminor, errdefs.ErrInvalidArgument)
	}
	return mode, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))), nil
}
