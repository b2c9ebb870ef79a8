package hold

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
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
	f, err := os.OpenFile(path, os.O_RDWR, 0)
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

// loopOf opens the loop device of a number, if it shows a file; errdefs.ErrNotFound: it does not.
func loopOf(device uint64, file string) (*loop, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(device), unix.Minor(device)))
	if err != nil || strings.TrimSuffix(string(raw), "\n") != file {
		return nil, fmt.Errorf("no loop device shows %s: %w", file, errdefs.ErrNotFound)
	}
	l := &loop{device: device, number: int(unix.Minor(device))}
	if l.fd, err = unix.Open(l.path(), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: l.path(), Err: err}
	}
	return l, nil
}
