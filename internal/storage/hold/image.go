package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ioctl"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

const (
	// imageFile is the file of a volume that is an image, in the volume's directory.
	imageFile = "image"
	// leastImage is the smallest image: a file system needs some room for itself.
	leastImage = 8 << 20
	// mkfs makes file systems in images.
	mkfs = "mkfs.ext4"
)

// image keeps a volume in a file of its size, with ext4 in it that is mounted at Data, or as the block device Data. The disk's room is reserved when the file is
// made, so that a full disk never keeps a file system from writing what it has promised to.
type image struct{}

func (image) path(v Volume) string { return filepath.Join(v.Dir, imageFile) }

// tools says what is missing to make an image.
func (image) tools(block bool) error {
	if block {
		return nil
	}
	if _, err := exec.LookPath(mkfs); err != nil {
		return fmt.Errorf("%s is not installed, which makes the file systems of images: install e2fsprogs", mkfs)
	}
	return nil
}

func (i image) Make(ctx context.Context, v Volume) error {
	if _, err := os.Lstat(i.path(v)); errors.Is(err, fs.ErrNotExist) {
		if err := i.file(ctx, v); err != nil {
			return err
		}
	}
	if err := i.Attach(ctx, v); err != nil || v.Block {
		return err
	}
	// A program that wants an empty directory, such as a database's, gets one. A check of the file system makes it anew when it needs it.
	if err := os.Remove(filepath.Join(v.Data, "lost+found")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Chmod(v.Data, dataMode); err != nil {
		return err
	}
	return atomicfile.SyncDir(v.Data)
}

// file makes the file. It has its name when it is whole. It is a new one each time: what a killed attempt has left may still be written to by its mkfs.
func (i image) file(ctx context.Context, v Volume) error {
	next := i.path(v) + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err = inPlace(f); err == nil {
		err = reserve(f, v.Size, v.Owed)
	}
	if err == nil && !v.Block {
		if err = format(ctx, f); err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, 0, v.Size) // where mkfs wants zeros it may leave holes
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(next, i.path(v))
	}
	if err != nil {
		os.Remove(next) // so that it does not keep the room until it is tried again
		return fmt.Errorf("image of %d bytes: %w", v.Size, err)
	}
	return atomicfile.SyncDir(v.Dir)
}

// format makes a file system in a file, and gives none of the file's room back. Its blocks are those of large file systems whatever its size, since it may grow.
func format(ctx context.Context, f *os.File) error {
	runtime.LockOSThread() // the child is killed when the thread ends that has started it
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-b", "4096", "-m", "0", "-E", "nodiscard,lazy_itable_init=1", "/proc/self/fd/3") // this file, whatever has its name by then
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (i image) Attach(_ context.Context, v Volume) error {
	if _, err := os.Lstat(i.path(v)); err != nil {
		return err
	}
	if v.Block {
		return i.device(v)
	}
	// Its mode tells an agent that nothing is mounted there, should that fail: no pod gets the empty directory for its volume.
	if err := os.Mkdir(v.Data, 0); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if mounted, err := mount.Is(v.Data); mounted || err != nil {
		return err
	}
	l, err := haveLoop(i.path(v), unix.LO_FLAGS_AUTOCLEAR)
	if err != nil {
		return err
	}
	defer l.close() // the mount keeps it, and frees it
	if err := unix.Mount(l.path(), v.Data, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount the file system in %s: %w", i.path(v), err)
	}
	return nil
}

// device has Data be the node of a loop device with the image.
func (i image) device(v Volume) error {
	l, err := i.attached(v)
	if err == nil {
		l.close()
		return nil
	}
	if !errdefs.IsNotFound(err) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l, err = haveLoop(i.path(v), 0); err != nil {
		return err
	}
	defer l.close()
	return put(v.Data, unix.S_IFBLK|0o600, l.device)
}

// attached is the loop device that a volume has now; errdefs.ErrNotFound: none.
func (i image) attached(v Volume) (*loop, error) {
	var st unix.Stat_t
	if err := unix.Stat(v.Data, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: v.Data, Err: err}
	}
	device := st.Dev
	if v.Block {
		device = st.Rdev
	}
	all, err := loopsOf(i.path(v))
	if err != nil {
		return nil, err
	}
	var is *loop
	for _, l := range all {
		if l.device == device {
			is = l
		} else {
			l.close()
		}
	}
	if is == nil {
		return nil, fmt.Errorf("%s is on no loop device that shows %s: %w", v.Data, i.path(v), errdefs.ErrNotFound)
	}
	return is, nil
}

func (i image) Resize(ctx context.Context, v Volume) error {
	if err := i.Attach(ctx, v); err != nil {
		return err
	}
	f, err := os.OpenFile(i.path(v), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := max(v.Size, info.Size()) // it never shrinks, and what an earlier growth has begun is completed
	if err := reserve(f, size, v.Owed); err != nil {
		return fmt.Errorf("enlarge %s: %w", i.path(v), err)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	l, err := i.attached(v)
	if err != nil {
		return err
	}
	defer l.close()
	if err := unix.IoctlSetInt(l.fd, unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("enlarge %s: %w", l.path(), err)
	}
	if v.Block {
		return nil
	}
	return growExt4(v.Data, size)
}

// ext4IocResizeFS is the number of a call that golang.org/x/sys/unix lacks (fs/ext4/ext4.h).
const ext4IocResizeFS = 0x40086610

// growExt4 has a mounted file system use so many bytes of its device. One that does so already stays.
func growExt4(dir string, size int64) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return err
	}
	blocks := uint64(size / st.Bsize)
	if err := ioctl.Call(d.Fd(), ext4IocResizeFS, &blocks); err != nil {
		return fmt.Errorf("enlarge the file system at %s: %w", dir, err)
	}
	return nil
}

// Detach frees each loop device that shows the image: at once, or when the last has let go of it who still has it open or mounted.
func (i image) Detach(_ context.Context, v Volume) error {
	if !v.Block {
		mounted, err := mount.Is(v.Data)
		if err == nil && mounted {
			err = mount.Unmount(v.Data)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	all, err := loopsOf(i.path(v))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, l := range all {
		if err := unix.IoctlSetInt(l.fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
			errs = append(errs, fmt.Errorf("free %s: %w", l.path(), err))
		}
		l.close()
	}
	if err := errors.Join(errs...); err != nil || !v.Block {
		return err
	}
	if err := os.Remove(v.Data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (image) Discard(context.Context, Volume) error { return nil }

func (i image) Usage(_ context.Context, v Volume) (Usage, error) {
	if v.Block {
		return Usage{Used: v.Size, Size: v.Size}, nil
	}
	if mounted, err := mount.Is(v.Data); err != nil || !mounted {
		return Usage{Size: v.Size}, errors.Join(err, fmt.Errorf("%s is not mounted: %w", v.Data, errdefs.ErrUnavailable))
	}
	return statfs(v.Data)
}

// statfs is the use of a whole file system.
func statfs(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Usage{Used: int64(st.Blocks-st.Bfree) * st.Bsize, Size: int64(st.Blocks) * st.Bsize}, nil
}
