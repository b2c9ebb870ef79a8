package probe

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/release"
)

func (sys system) root() Result {
	if uid := sys.euid(); uid != 0 {
		return bad("root", "user id %d", uid).fail("run as root: sudo monopod ...")
	}
	return ok("root", "user id 0")
}

// The oldest kernel that a node can run on, for its pidfds (5.3), and the oldest that is known to be in use.
var oldestKernel, testedKernel = release.Version{Major: 5, Minor: 3}, release.Version{Major: 5, Minor: 10}

func (sys system) kernel() Result {
	const name = "kernel"
	runs, err := sys.release()
	if err != nil {
		return bad(name, "%v", err).fail("run on Linux %s or later", oldestKernel)
	}
	v, err := release.Parse(runs)
	if err != nil {
		return bad(name, "%s (cannot tell the version)", runs).warn("Linux %s or later is needed", oldestKernel)
	}
	switch {
	case v.Before(oldestKernel):
		return bad(name, "Linux %s", runs).fail("upgrade to Linux %s or later", testedKernel)
	case v.Before(testedKernel):
		return bad(name, "Linux %s", runs).warn("older than %s, on which nobody has tried it: consider an upgrade", testedKernel)
	}
	return ok(name, "Linux %s (%s)", runs, runtime.GOARCH)
}

// capability is one that matters to a node.
type capability struct {
	bit     int
	name    string
	without string // what goes without it
	needed  bool   // nothing goes without it
}

var knownCapabilities = []capability{
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "no container can be made", true},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "no pod network can be made", true},
	{unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT", "no container can be made", true},
	{unix.CAP_SETUID, "CAP_SETUID", "no container can change its user", true},
	{unix.CAP_SETGID, "CAP_SETGID", "no container can change its group", true},
	{unix.CAP_MKNOD, "CAP_MKNOD", "devices in containers are bind-mounted, not made", false},
	{unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "oom_score_adj cannot be lowered, nor a limit be raised above the host's", false},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "namespaces of other users' processes cannot be entered", false},
	{unix.CAP_NET_RAW, "CAP_NET_RAW", "ping does not work in pods", false},
	{unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", "pods cannot listen below port 1024", false},
	{unix.CAP_CHOWN, "CAP_CHOWN", "images cannot be unpacked", true},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "images cannot be unpacked", true},
	{unix.CAP_FOWNER, "CAP_FOWNER", "images cannot be unpacked", true},
	{unix.CAP_KILL, "CAP_KILL", "containers of other users cannot be stopped", true},
}

// agentCapabilities are those that an agent needs beside a runtime of somebody else's.
var agentCapabilities = []capability{
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "volumes in memory cannot be mounted", true},
	{unix.CAP_CHOWN, "CAP_CHOWN", "volumes cannot be given to the pods' groups", true},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "volumes and logs of pods cannot be written", true},
	{unix.CAP_FOWNER, "CAP_FOWNER", "volumes cannot be given to the pods' groups", true},
}

// capabilities compares what this process has with what the kernel knows, and with those that matter to it. A container of ours gets at most what is
// found here.
func (sys system) capabilities(matter []capability) Result {
	const name = "capabilities"
	has, err := sys.effectiveCapabilities()
	if err != nil {
		return bad(name, "cannot be read: %v", err).fail("mount proc at %s", sys.proc)
	}
	last := unix.CAP_LAST_CAP
	if raw, err := os.ReadFile(filepath.Join(sys.proc, "sys/kernel/cap_last_cap")); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
			last = n
		}
	}
	var missing, effects []string
	needed := false
	known := map[int]bool{}
	for _, c := range matter {
		known[c.bit] = true
		if has&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
			effects = append(effects, "without "+c.name+" "+c.without)
			needed = needed || c.needed
		}
	}
	for bit := 0; bit <= last; bit++ {
		if !known[bit] && has&(1<<bit) == 0 {
			missing = append(missing, fmt.Sprintf("capability %d", bit))
		}
	}
	if len(missing) == 0 {
		return ok(name, "all %d", last+1)
	}
	f := bad(name, "%s missing", strings.Join(missing, ", "))
	effect := strings.Join(append(effects, "containers that it starts never get what is missing here"), "; ")
	if needed {
		return f.fail("start it with full privileges: %s", effect)
	}
	return f.warn("%s", effect)
}

func (sys system) effectiveCapabilities() (uint64, error) {
	f, err := os.Open(filepath.Join(sys.proc, "self/status"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if value, found := strings.CutPrefix(sc.Text(), "CapEff:"); found {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line CapEff", f.Name())
}

// Operation and action of seccomp(2) that ask the kernel what it can do.
const (
	seccompGetActionAvail        = 2
	seccompRetErrno       uint32 = 0x00050000
)

func seccomp() Result {
	const name = "seccomp"
	action := seccompRetErrno
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, seccompGetActionAvail, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return bad(name, "no filters: %v", errno).warn("pods with a seccomp profile are refused: use a kernel with CONFIG_SECCOMP_FILTER")
	}
	return ok(name, "filters")
}

// pidfdGetInfo is the ioctl PIDFD_GET_INFO of linux/pidfd.h, which fills a struct pidfd_info.
const pidfdGetInfo = 0xC040FF0B

type pidfdInfo struct {
	mask uint64
	_    [56]byte // the structure's first version has 64 bytes in all
}

func pidfd() Result {
	const name = "pidfd"
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return bad(name, "pidfd_open: %v", err).fail("use Linux %s or later; if this is a container, let its seccomp profile allow pidfd_open", oldestKernel)
	}
	defer unix.Close(fd)
	var info pidfdInfo
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pidfdGetInfo, uintptr(unsafe.Pointer(&info))); errno != 0 {
		return ok(name, "yes (without PIDFD_GET_INFO, which is not needed)")
	}
	return ok(name, "yes, with PIDFD_GET_INFO")
}
