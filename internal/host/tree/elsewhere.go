package tree

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// elsewherePatience bounds how long Remove waits for directories that are mount points elsewhere only. A container's creation that is stuck
// in a file that hangs holds its copy of the tree for 30 seconds, until it is given up.
const elsewherePatience = 45 * time.Second

// elsewherePace is how often it looks again when no event comes: should one come before what it tells of.
const elsewherePace = 250 * time.Millisecond

// removeFree removes a file by try, and waits until end while it cannot be removed only because something is mounted on it elsewhere: under another mount of
// the file system in this namespace, such as a copy of the whole tree that somebody binds for a moment (mount.BindClean does). Such a
// mount is not seen at the file's own place. What is mounted there is not waited for.
func removeFree(dir int, name string, end time.Time, try func() error) error {
	err := try()
	if !errors.Is(err, unix.EBUSY) || !isElsewhere(dir, name) {
		return err
	}
	// The list of mounts tells by poll(2) that it has changed since it was opened, or since the last poll.
	mounts, oerr := os.Open("/proc/thread-self/mountinfo") // the main thread may be elsewhere
	if oerr != nil {
		return err
	}
	defer mounts.Close()
	for {
		if err = try(); !errors.Is(err, unix.EBUSY) || !isElsewhere(dir, name) {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return err
		}
		fds := []unix.PollFd{{Fd: int32(mounts.Fd()), Events: unix.POLLPRI}}
		if _, perr := unix.Poll(fds, int(min(left, elsewherePace).Milliseconds())+1); perr != nil && !errors.Is(perr, unix.EINTR) {
			return err
		}
	}
}

// isElsewhere says that nothing is mounted at the name itself, as far as the kernel tells (5.8).
func isElsewhere(dir int, name string) bool {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0
}
