package escape

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// opens are those of one file of a container by processes outside of its cgroups, as the kernel tells them (fanotify(7), with file handles
// instead of descriptors, for whose the kernel would open the file itself). Overlays have no handles before Linux 6.6; there inotify(7)
// tells of opens, and not of whom. Nothing is told of who only takes hold of a file by O_PATH.
type opens struct {
	*container
	path string
	// forbidden: the container's device cgroup does not let it use the file, so whoever opened it stood outside, even if he has gone since.
	forbidden bool
	fd        int
	nameless  bool // inotify's
}

// watch begins to look at a file of the container, as it is there now.
func (c *container) watch(path string, forbidden bool) *opens {
	c.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	c.check(err)
	c.Cleanup(func() { unix.Close(fd) })
	at := filepath.Join("/proc", itoa(c.process()), "root", path)
	err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_DONT_FOLLOW, unix.FAN_OPEN, unix.AT_FDCWD, at)
	if err == unix.EOPNOTSUPP && forbidden {
		return c.watchNameless(path, at)
	}
	if err != nil {
		c.Fatalf("watch %s: %v", at, err)
	}
	return &opens{container: c, path: path, forbidden: forbidden, fd: fd}
}

func (c *container) watchNameless(path, at string) *opens {
	c.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	c.check(err)
	c.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, at, unix.IN_OPEN|unix.IN_DONT_FOLLOW); err != nil {
		c.Fatalf("watch %s: %v", at, err)
	}
	return &opens{container: c, path: path, forbidden: true, fd: fd, nameless: true}
}

// by are those who have opened the file since the last call, as well as they are still known.
func (o *opens) by() (who []string) {
	o.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(o.fd, buf)
		if err == unix.EAGAIN {
			return who
		}
		o.check(err)
		if o.nameless {
			who = append(who, "somebody")
			continue
		}
		for rest := buf[:n]; len(rest) >= unix.FAN_EVENT_METADATA_LEN; {
			length := binary.NativeEndian.Uint32(rest) // struct fanotify_event_metadata: event_len first, pid last
			pid := int(int32(binary.NativeEndian.Uint32(rest[20:])))
			rest = rest[length:]
			groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			if o.forbidden || err == nil && !strings.Contains(string(groups), o.id) {
				comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				who = append(who, fmt.Sprintf("%d %s", pid, strings.TrimSpace(string(comm))))
			}
		}
	}
}

// wantNone fails when the file has been opened.
func (o *opens) wantNone(why string) {
	o.Helper()
	if who := o.by(); len(who) > 0 {
		o.Errorf("%s: %s of the container was opened outside of its cgroups, by %q", why, o.path, who)
	}
}
