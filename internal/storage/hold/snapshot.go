package hold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/copytree"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/quota"
	"monopod.dev/monopod/internal/host/reflink"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/storage/plan"
)

// Snapshot is what a volume had at one time, in a directory of its own on the file system of the volumes. Nobody but this package has it.
type Snapshot struct {
	Dir string
	// Hold and Block are the volume's: what it was made of says what the snapshot is.
	Hold  plan.Hold
	Block bool
}

// path is what there is in the snapshot's directory: a subvolume, an image or a directory.
func (s Snapshot) path() string {
	if s.Hold == plan.File {
		return filepath.Join(s.Dir, imageFile)
	}
	return filepath.Join(s.Dir, plan.DataDir)
}

// taker is a Holder whose volumes can be copied as they are at one moment, whoever writes to them meanwhile.
type taker interface {
	take(ctx context.Context, v Volume, s Snapshot) error
}

var (
	_ taker = qgroup{}
	_ taker = image{}
)

// AtOnce says whether snapshots of volumes whose size is held in this way are of one moment. Others are copied file by file.
func AtOnce(kind plan.Hold) bool { return kind == plan.Qgroup || kind == plan.File }

// Shares says whether the file system of the volumes can share blocks; else it is NotImplemented.
func (h *Holders) Shares() error {
	var both [2]*os.File
	for i := range both {
		f, err := os.OpenFile(h.dir, os.O_RDWR|unix.O_TMPFILE, 0o600) // without a name, so that a kill leaves nothing
		if errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("%w: %w", err, errdefs.ErrNotImplemented)
		}
		if err != nil {
			return err
		}
		defer f.Close()
		both[i] = f
	}
	if _, err := both[0].Write(make([]byte, 4096)); err != nil {
		return err
	}
	return reflink.Clone(both[0], both[1])
}

// Take makes a snapshot in an empty directory, durably. It shares with the volume what neither has changed: a file system that cannot do that is NotImplemented. What a
// kill leaves is thawed (Thaw), dropped (Drop), and removed with the directory.
func (h *Holders) Take(ctx context.Context, v Volume, s Snapshot) error {
	holder, err := h.Of(s.Hold)
	if err != nil {
		return err
	}
	if t, ok := holder.(taker); ok {
		return t.take(ctx, v, s)
	}
	from, err := os.Open(v.Data)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := os.Mkdir(s.path(), 0o700); err != nil {
		return err
	}
	to, err := os.Open(s.path())
	if err != nil {
		return err
	}
	defer to.Close()
	if err := copytree.Clone(ctx, from, to); err != nil {
		return err
	}
	return synced(to)
}

// synced has all that was written to the file system of an open file be durable.
func synced(f *os.File) error {
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: f.Name(), Err: err}
	}
	return nil
}

// Open opens what is in a snapshot: its root directory, or a file with the content of a block device. It is read only; release ends it, and so does the end of the process.
func (s Snapshot) Open() (root *os.File, release func(), err error) {
	if s.Hold != plan.File || s.Block {
		root, err = os.Open(s.path())
		if err != nil {
			return nil, nil, err
		}
		return root, func() { root.Close() }, nil
	}
	l, err := haveLoop(s.path(), unix.LO_FLAGS_AUTOCLEAR|unix.LO_FLAGS_READ_ONLY)
	if err != nil {
		return nil, nil, err
	}
	defer l.close() // the mount keeps it, and frees it
	m, err := mount.Filesystem("ext4", l.path(), []string{"ro"})
	if err != nil {
		return nil, nil, fmt.Errorf("mount the file system in %s: %w", s.path(), err)
	}
	if root, err = m.Root(); err != nil {
		m.Close()
		return nil, nil, err
	}
	return root, func() { root.Close(); m.Close() }, nil
}

// OpenLive opens what is in a volume that nobody is to write to, as Open does.
func (h *Holders) OpenLive(ctx context.Context, v Volume, kind plan.Hold) (*os.File, error) {
	holder, err := h.Of(kind)
	if err != nil {
		return nil, err
	}
	if err := holder.Attach(ctx, v); err != nil {
		return nil, err
	}
	if !v.Block {
		return os.Open(v.Data)
	}
	if err := flush(v); err != nil {
		return nil, err
	}
	return os.Open(image{}.path(v))
}

// flush has what was written to a block device be in its image.
func flush(v Volume) error {
	d, err := os.OpenFile(v.Data, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Fill makes a volume that nobody has had yet, with what is in the snapshot. What a kill leaves of it is not completed: it is removed.
func (h *Holders) Fill(ctx context.Context, s Snapshot, v Volume, kind plan.Hold) error {
	holder, err := h.Of(kind)
	if err != nil {
		return err
	}
	if q, ok := holder.(qgroup); ok && s.Hold == plan.Qgroup {
		return q.from(ctx, s, v)
	}
	if err := holder.Make(ctx, v); err != nil {
		return err
	}
	from, release, err := s.Open()
	if err != nil {
		return err
	}
	defer release()
	if s.Block {
		return copyDevice(ctx, from, v.Data)
	}
	to, err := os.Open(v.Data)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := copytree.Copy(ctx, from, to); err != nil {
		return err
	}
	return synced(to)
}

// Synced has all that is in a new volume be durable.
func Synced(v Volume) error {
	if v.Block {
		return flush(v)
	}
	f, err := os.Open(v.Data)
	if err != nil {
		return err
	}
	defer f.Close()
	return synced(f)
}

// copyDevice copies a file to a block device of zeros, but for its holes.
func copyDevice(ctx context.Context, from *os.File, device string) error {
	to, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer to.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	const piece = 64 << 20 // between two looks at whether anybody waits
	for at := int64(0); at < info.Size(); {
		begin, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return err
		}
		end, err := from.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for at = begin; at < end; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(piece, end-at)
			if _, err := io.Copy(io.NewOffsetWriter(to, at), io.NewSectionReader(from, at, n)); err != nil {
				return err
			}
			at += n
		}
	}
	return to.Sync()
}

// Drop removes what keeps the directory of a snapshot from being removed.
func Drop(dir string) error {
	data := filepath.Join(dir, plan.DataDir)
	is, err := quota.IsSubvolume(data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !is {
		return err
	}
	if err := quota.RemoveSubvolume(data); err != nil {
		return err
	}
	if _, err := os.Lstat(data); err == nil { // nobody can remove what is in one that is read only
		return fmt.Errorf("the subvolume %s cannot be removed: is something mounted there, or another subvolume in it? %w", data, errdefs.ErrUnavailable)
	}
	return nil
}

// Usage says how much is in a snapshot, and how much of that nobody else has: what is free when the snapshot goes. Where that is not known it is an error.
func (s Snapshot) Usage(ctx context.Context) (used, own int64, err error) {
	f, err := os.Open(s.path())
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	switch {
	case s.Hold == plan.Qgroup:
		all, own, err := quota.SubvolumeOwn(s.path())
		return int64(all.Bytes), int64(own), err // disks are smaller than what int64 holds
	case s.Hold == plan.File:
		all, shared, err := reflink.Extents(f)
		return all, all - shared, err
	}
	m := &measuring{counting: counting{ctx: ctx, linked: map[uint64]bool{}}}
	err = tree.Walk(int(f.Fd()), m)
	return m.bytes, m.bytes - m.shared, err
}

// measuring counts what files share as well.
type measuring struct {
	counting
	shared int64
}

// Act implements tree.Actor.
func (m *measuring) Act(dir int, name string, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks == 0 || st.Nlink > 1 && m.linked[st.Ino] {
		return nil
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	_, shared, err := reflink.Extents(f)
	if errdefs.IsNotImplemented(err) {
		return nil
	}
	m.shared += shared
	return err
}

// whole has a file that was written under another name have its own, durably.
func whole(f *os.File, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}
