package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/tree"
)

const (
	// maxLinked is how many files with several names are remembered; more become files of their own.
	maxLinked = 1 << 20
	// maxPath is the longest path in a volume that is written: where it is unpacked its directory's path is before it.
	maxPath = 3 << 10
	// subvolumeStub is the inode of what a snapshot of btrfs has in the place of a subvolume that was in it.
	subvolumeStub = 2
)

// Write writes an archive of a directory, or of a file with the content of a block device.
func Write(ctx context.Context, out io.Writer, head Head, from *os.File) (Result, error) {
	head.Format, head.Version = format, version
	w := &writer{ctx: ctx, out: out, tw: tar.NewWriter(out), linked: map[uint64]string{}, buf: make([]byte, 256<<10)}
	if err := w.document(headName, head, head.Taken); err != nil {
		return w.result, err
	}
	var err error
	if head.Claim.Block {
		err = w.device(from)
	} else {
		err = w.tree(from)
	}
	if err == nil {
		err = w.document(endName, End{Entries: w.result.Entries}, head.Taken)
	}
	if err == nil {
		err = w.tw.Close()
	}
	return w.result, err
}

type writer struct {
	ctx    context.Context
	out    io.Writer
	tw     *tar.Writer
	buf    []byte
	result Result
	btrfs  bool

	linked map[uint64]string // files with several names, by their inodes
	path   []string          // of the entry that the walk is at
	dir    int               // the directory that it is in
	err    error             // the walk's end
}

func (w *writer) document(name string, v any, at time.Time) error {
	raw, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if err := w.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(raw)), Mode: 0o600, ModTime: at.Truncate(time.Second), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = w.tw.Write(raw)
	return err
}

func (w *writer) device(from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	return w.file(&tar.Header{Typeflag: tar.TypeReg, Name: deviceName, Size: info.Size(), Mode: 0o600, ModTime: info.ModTime(), Format: tar.FormatPAX}, from, true)
}

func (w *writer) tree(root *os.File) error {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(root.Fd()), &st), unix.Fstatfs(int(root.Fd()), &fs)); err != nil {
		return err
	}
	w.btrfs = fs.Type == unix.BTRFS_SUPER_MAGIC
	h := header(dataName+"/", &st)
	h.Typeflag = tar.TypeDir
	w.xattrs(h, fmt.Sprintf("/proc/self/fd/%d/.", root.Fd()))
	if err := w.bare(h); err != nil {
		return err
	}
	if err := tree.Walk(int(root.Fd()), w); err != nil {
		return err
	}
	return w.err
}

// Pause implements tree.Visitor.
func (w *writer) Pause() error { return errors.Join(w.err, w.ctx.Err()) }

// Act implements tree.Actor.
func (w *writer) Act(dir int, _ string, _ *unix.Stat_t) error {
	w.dir = dir
	return w.err
}

// Visit implements tree.Visitor.
func (w *writer) Visit(name string, depth int, st *unix.Stat_t) (enter bool) {
	w.path = append(w.path[:depth-1], name)
	path := strings.Join(w.path, "/")
	switch {
	case len(path) > maxPath:
		w.err = fmt.Errorf("%.200q... has a path of %d bytes, archives have at most %d: %w", path, len(path), maxPath, errdefs.ErrFailedPrecondition)
		return false
	case w.btrfs && st.Ino == subvolumeStub:
		w.result.leaveOut("%s: it is a subvolume of its own", path)
		return false
	}
	err := w.one(name, dataName+"/"+path, st)
	if errors.Is(err, unix.ENOENT) {
		return false // it was removed meanwhile
	}
	if err != nil {
		w.err = fmt.Errorf("%s: %w", path, err)
	}
	return err == nil
}

// one writes what is at a name of the directory that the walk is in.
func (w *writer) one(name, full string, st *unix.Stat_t) error {
	h := header(full, st)
	at := fmt.Sprintf("/proc/self/fd/%d/%s", w.dir, name)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, full+"/"
	case unix.S_IFREG:
		if first, ok := w.linked[st.Ino]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return w.bare(h)
		}
		return w.regular(name, at, h, st)
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(w.dir, name, target)
		if err != nil {
			return err
		}
		h.Linkname = string(target[:n])
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			w.result.leaveOut("%s: it is the device %d:%d of a machine", full, unix.Major(st.Rdev), unix.Minor(st.Rdev))
			return nil
		}
		h.Typeflag = tar.TypeChar // an overlay's whiteout
	case unix.S_IFBLK:
		w.result.leaveOut("%s: it is the device %d:%d of a machine", full, unix.Major(st.Rdev), unix.Minor(st.Rdev))
		return nil
	default: // a socket: nobody listens on a copy
		return nil
	}
	w.xattrs(h, at)
	return w.bare(h)
}

// bare writes an entry without content.
func (w *writer) bare(h *tar.Header) error {
	w.result.Entries++
	return w.tw.WriteHeader(h)
}

func (w *writer) regular(name, at string, h *tar.Header, st *unix.Stat_t) error {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(w.dir, name, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		fd, err = unix.Openat(w.dir, name, flags, 0)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	w.xattrs(h, at)
	if err := w.file(h, f, st.Blocks*512 < st.Size); err != nil {
		return err
	}
	if st.Nlink > 1 && len(w.linked) < maxLinked {
		w.linked[st.Ino] = h.Name
	}
	return nil
}

// header is what the tar says of every file.
func header(name string, st *unix.Stat_t) *tar.Header {
	return &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
}

const xattrRecord = "SCHILY.xattr."

// xattrs adds the extended attributes of a file, but for the labels that the machine's policy gives.
func (w *writer) xattrs(h *tar.Header, at string) {
	names := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Llistxattr(at, names)
	if err != nil || n == 0 {
		return // none, or it is gone, which is seen next
	}
	value := make([]byte, 64<<10) // XATTR_SIZE_MAX
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "security.selinux" {
			continue
		}
		n, err := unix.Lgetxattr(at, name, value)
		switch {
		case errors.Is(err, unix.ENODATA):
		case err != nil, strings.Contains(name, "="):
			w.result.leaveOut("%s: its attribute %q: tars cannot hold it, or it cannot be read", h.Name, name)
		default:
			h.PAXRecords[xattrRecord+name] = string(value[:n])
		}
	}
}

// file writes an entry with content; sparse: it may have holes.
func (w *writer) file(h *tar.Header, f *os.File, sparse bool) error {
	w.result.Entries++
	all := []segment{{0, h.Size}}
	if sparse {
		var err error
		if all, err = segments(f, h.Size, maxSegments); err != nil {
			return err
		}
	}
	if len(all) == 1 && all[0] == (segment{0, h.Size}) {
		if err := w.tw.WriteHeader(h); err != nil {
			return err
		}
		return w.content(w.tw, f, h.Name, all)
	}
	if err := w.tw.Flush(); err != nil {
		return err
	}
	begin, padding, err := sparseEntry(h, all)
	if err == nil {
		_, err = w.out.Write(begin)
	}
	if err == nil {
		err = w.content(w.out, f, h.Name, all)
	}
	if err == nil {
		_, err = w.out.Write(make([]byte, padding))
	}
	return err
}

// content writes parts of a file. Where it has become shorter meanwhile there are zeros.
func (w *writer) content(to io.Writer, f *os.File, name string, all []segment) error {
	short := false
	for _, s := range all {
		for at := s.at; at < s.at+s.length; {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			part := w.buf[:min(int64(len(w.buf)), s.at+s.length-at)]
			n, err := f.ReadAt(part, at)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if n < len(part) {
				short = true
				clear(part[n:])
			}
			if _, err := to.Write(part); err != nil {
				return err
			}
			at += int64(len(part))
			w.result.Bytes += int64(len(part))
		}
	}
	if short {
		w.result.leaveOut("%s: it became shorter while it was read; zeros are in place of its end", name)
	}
	return nil
}
