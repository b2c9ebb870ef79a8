package probe

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What a node with a hundred pods needs of inotify.
const (
	wantedInstances = 128
	wantedWatches   = 8192
)

// inotify makes an instance, and looks at the limits.
func (sys system) inotify() Result {
	const name = "inotify"
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return bad(name, "%v", err).warn("changes of CDI specs are not seen before a restart: raise the sysctl fs.inotify.max_user_instances")
	}
	unix.Close(fd)
	instances, watches := sys.limit("max_user_instances"), sys.limit("max_user_watches")
	f := bad(name, "%d instances, %d watches", instances, watches)
	if instances < wantedInstances || watches < wantedWatches {
		return f.warn("raise the sysctls fs.inotify.max_user_instances to %d and fs.inotify.max_user_watches to %d, at least", wantedInstances, wantedWatches)
	}
	return ok(name, "%s", f.text)
}

// limit reads a sysctl of inotify's; 0 when it cannot be read.
func (sys system) limit(name string) int {
	raw, err := os.ReadFile(filepath.Join(sys.proc, "sys/fs/inotify", name))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	return n
}
