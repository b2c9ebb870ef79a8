package hold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/storage/plan"
)

// loop is an open loop device.
type loop struct {
	fd     int
	number int
	device uint64
}

func (l *loop) path() string { return fmt.Sprintf("/dev/loop%d", l.number) }
func (l *loop) close()       { unix.Close(l.fd) }

// maxLoopTries is how often a free device is looked for that somebody else takes in between.
const maxLoopTries = 64

// attachLoop has a free loop device show a file. With unix.LO_FLAGS_AUTOCLEAR it does so until nobody has it open or mounted.
func attachLoop(path string, flags uint32) (*loop, error) {
	mode := os.O_RDWR
	if flags&unix.LO_FLAGS_READ_ONLY != 0 {
		mode = os.O_RDONLY
	}
	f, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("images need loop devices (modprobe loop): %w", err)
	}
	defer control.Close()
	config := &unix.LoopConfig{Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: flags | unix.LO_FLAGS_DIRECT_IO}} // a descriptor fits
	copy(config.Info.File_name[:], path[max(0, len(path)-63):])
	for range maxLoopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		l := &loop{number: n}
		if l.fd, err = unix.Open(l.path(), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return nil, &os.PathError{Op: "open", Path: l.path(), Err: err}
		}
		err = unix.IoctlLoopConfigure(l.fd, config)
		if err == nil {
			var st unix.Stat_t
			if err = unix.Fstat(l.fd, &st); err == nil {
				l.device = st.Rdev
				return l, nil
			}
		}
		l.close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%s for %s: %w", l.path(), path, err)
		}
	}
	return nil, fmt.Errorf("no loop device for %s: others take each that is free: %w", path, errdefs.ErrUnavailable)
}

// haveLoop opens a loop device that shows a file: the one that does so already, or a new one. Two of one file would be two disks to the kernel, whose file
// systems destroy each other. Nothing that is discarded on it makes holes in the file, whose room is reserved.
func haveLoop(path string, flags uint32) (*loop, error) {
	all, err := loopsOf(path)
	if err != nil {
		return nil, err
	}
	var l *loop
	for _, one := range all {
		if l == nil {
			l = one
		} else {
			one.close()
		}
	}
	if l == nil {
		if l, err = attachLoop(path, flags); err != nil {
			return nil, err
		}
	}
	if flags&unix.LO_FLAGS_READ_ONLY != 0 {
		return l, nil
	}
	if err := l.keepRoom(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// keepRoom has the device refuse discards. The kernel writes zeros then too where it would have made holes for them.
func (l *loop) keepRoom() error {
	f, err := os.OpenFile(fmt.Sprintf("/sys/dev/block/%d:%d/queue/discard_max_bytes", unix.Major(l.device), unix.Minor(l.device)), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("have %s not discard: %w", l.path(), err)
	}
	_, err = f.WriteString("0")
	return errors.Join(err, f.Close())
}

// loopsOf opens the loop devices that show a file, by whatever name.
func loopsOf(path string) (all []*loop, err error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	bound, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, dir := range bound {
		l, err := openLoop("/dev/"+filepath.Base(filepath.Dir(dir)), &file)
		if err == nil {
			all = append(all, l)
		} else if !errdefs.IsNotFound(err) {
			for _, l := range all {
				l.close()
			}
			return nil, err
		}
	}
	return all, nil
}

// openLoop opens a loop device, if it shows a file; errdefs.ErrNotFound: it does not.
func openLoop(path string, file *unix.Stat_t) (*loop, error) {
	none := fmt.Errorf("%s does not show it: %w", path, errdefs.ErrNotFound)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) // who opens it to write has udev look at it anew
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) {
		return nil, none // somebody else's, who has another /dev; or it is just let go of
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	info, err := unix.IoctlLoopGetStatus64(fd)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	switch {
	case errors.Is(err, unix.ENXIO), err == nil && (info.Device != file.Dev || info.Inode != file.Ino):
		err = none
	case err == nil && info.Offset|info.Sizelimit != 0:
		err = fmt.Errorf("%s shows a part of the image: detach it (losetup -d %s)", path, path)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &loop{fd: fd, number: int(info.Number), device: st.Rdev}, nil
}

// Forget takes from a directory of volumes, each of them in a directory of its own, the nodes of devices that do not show the volume's image now: the start of the
// machine gives each number to whoever comes first, so that a node may be another claim's disk. An empty file is in the node's place until the volume is attached:
// it says that there is a volume. Forget is called before anything that may fail, and before pods are started.
func Forget(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		node := filepath.Join(dir, e.Name(), plan.DataDir)
		var st, file unix.Stat_t
		if err := unix.Lstat(node, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
			continue
		}
		if err := unix.Stat(filepath.Join(dir, e.Name(), imageFile), &file); err == nil {
			if l, err := openLoop(node, &file); err == nil {
				l.close()
				continue
			}
		}
		if err := put(node, unix.S_IFREG, 0); err != nil {
			errs = append(errs, os.Remove(node)) // as when the disk is full
		}
	}
	return errors.Join(errs...)
}

// put has a file of a kind be at a path, in place of what is there.
func put(path string, mode uint32, device uint64) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(next, mode, int(device)); err != nil { // a number of a device fits
		return &os.PathError{Op: "mknod", Path: next, Err: err}
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}
