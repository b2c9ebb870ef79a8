package executor_test

import (
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// look prints all that a process can see of how it was started. Errors go the way of the rest: what comes by another pipe may be in the log after the end.
const look = `{
echo "== status"; grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp:|Seccomp_filters|SigBlk|SigIgn|SigCgt)' /proc/self/status
echo "== limits"; cat /proc/self/limits; cat /proc/self/oom_score_adj; umask; pwd; tty; echo "args $0 $*"
echo "== env"; env
echo "== cgroup"; cat /proc/self/cgroup; cat /proc/self/cpuset 2>/dev/null
echo "== processes"; set -- /proc/[0-9]*; [ $# -lt 9 ] && echo few; [ $(cut -d' ' -f6 /proc/self/stat) = $(cut -d' ' -f6 /proc/$$/stat) ] && echo same session
echo "== network"; ls /sys/class/net; ip addr show lo 2>/dev/null | grep -o "LOOPBACK,[A-Z,_]*"
echo "== files"; ls -la /dev | grep -v -e total -e " \.\.$" | sed -E 's/[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / /; s/^([^ ]+) +[0-9]+/\1/'; ls -la / | grep -v total | sed -E 's/ +[0-9]+ +/ /; s/[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / /'
cat /proc/keys >/dev/null 2>&1; echo keys $?; cat /proc/timer_list 2>/dev/null | head -c 3; echo x 2>/dev/null > /proc/sys/kernel/hostname; echo sysrw $?
touch /probe 2>/dev/null; echo root $?; touch /tmp/probe 2>/dev/null; echo tmp $?; touch /ro/probe 2>/dev/null; echo ro $?; cat /ro/file 2>/dev/null
unshare -m true 2>/dev/null; echo unshare $?; mknod /tmp/n c 1 3 2>/dev/null; echo mknod $?; cat /tmp/n 2>/dev/null; echo $?
ls /sys/fs/cgroup 2>/dev/null
readlink /proc/self/root; readlink /proc/self/cwd
echo "== mounts"; cat /proc/self/mountinfo
echo "== end"
} 2>&1
`

var mountinfoLine = regexp.MustCompile(`^\d+ \d+ \d+:\d+ (.*)$`)

// normal takes out of a report what differs between any two containers.
func normal(n *node, report string) []string {
	report = strings.ReplaceAll(report, filepath.Base(n.cgroup), "CGROUP")
	report = strings.ReplaceAll(report, n.dir, "DIR")
	report = regexp.MustCompile(`(shared|master|propagate_from):\d+`).ReplaceAllString(report, "$1:N")
	// What a mount of cgroups calls its source says nothing.
	report = regexp.MustCompile(` - (cgroup2?) (cgroup|cgroup2|systemd) `).ReplaceAllString(report, " - $1 X ")
	var lines, mounts []string
	for line := range strings.Lines(report) {
		line = strings.TrimRight(line, "\r\n ")
		if m := mountinfoLine.FindStringSubmatch(line); m != nil {
			mounts = append(mounts, strings.ReplaceAll(m[1], ",inode64", ""))
			continue
		}
		if !strings.HasPrefix(line, "mp-test-") { // another container's cgroup
			lines = append(lines, line)
		}
	}
	slices.Sort(mounts)
	return append(lines, mounts...)
}

// A container that package spawn starts is the one that libcontainer starts, and so are the further processes in it.
func TestSameAsLibcontainer(t *testing.T) {
	// What the executor's starter ignores is nothing to containers.
	signal.Ignore(unix.SIGHUP, unix.SIGINT)
	defer signal.Reset(unix.SIGHUP, unix.SIGINT)
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "file"), []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := []string{"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETUID", "CAP_DAC_OVERRIDE"}
	cases := map[string]func(*specs.Spec){
		"plain": nil,
		"a pod's container": func(s *specs.Spec) {
			s.Root.Readonly = false
			s.Linux.RootfsPropagation = "rslave"
			s.Process.User = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{5, 2000}}
			s.Process.NoNewPrivileges = true
			s.Process.Cwd = "/tmp/made/here"
			s.Process.Env = append(s.Process.Env, "A=1", "A=2", "HOME=")
			s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 512, Soft: 256}, {Type: "RLIMIT_CORE"}}
			s.Process.OOMScoreAdj = new(int)
			*s.Process.OOMScoreAdj = 321
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
				specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
				specs.Mount{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
				specs.Mount{Destination: "/ro", Type: "bind", Source: shared, Options: []string{"rbind", "rprivate", "ro"}},
				specs.Mount{Destination: "/tmp/slave", Type: "bind", Source: shared, Options: []string{"rbind", "rslave", "rw", "noexec", "nosuid", "noatime"}},
				specs.Mount{Destination: "/tmp/rro", Type: "bind", Source: "/sys/fs", Options: []string{"rbind", "rprivate", "ro", "rro"}},
				specs.Mount{Destination: "/tmp/file", Type: "bind", Source: filepath.Join(shared, "file"), Options: []string{"bind", "nodev"}},
				specs.Mount{Destination: "/tmp/small", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "size=64k", "mode=1777"}})
			s.Linux.MaskedPaths = []string{"/proc/keys", "/proc/timer_list", "/proc/acpi", "/proc/scsi", "/sys/firmware", "/not/there"}
			s.Linux.ReadonlyPaths = []string{"/proc/sys", "/proc/bus", "/proc/irq", "/not/there"}
			s.Linux.Seccomp = seccomp.DefaultProfile(s)
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/my/fuse", Type: "c", Major: 10, Minor: 229, FileMode: new(os.FileMode)}}
			*s.Linux.Devices[0].FileMode = 0o640
			limit, shares, pids := int64(64<<20), uint64(256), int64(50)
			s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}, CPU: &specs.LinuxCPU{Shares: &shares}, Pids: &specs.LinuxPids{Limit: &pids}}
		},
		"a cgroup namespace": func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
				specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}})
		},
		"root with capabilities": func(s *specs.Spec) {
			s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all, Inheritable: all[:1], Ambient: all[:1]}
			s.Linux.Seccomp = seccomp.DefaultProfile(s)
			s.Linux.RootfsPropagation = "rslave"
		},
		"a user without capabilities, with a filter that takes a privilege to load": func(s *specs.Spec) {
			s.Process.User = specs.User{UID: 65534, GID: 65534}
			s.Process.Capabilities = &specs.LinuxCapabilities{}
			s.Linux.Seccomp = seccomp.DefaultProfile(s)
		},
		"shared propagation": func(s *specs.Spec) {
			s.Linux.RootfsPropagation = "rshared"
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp/sh", Type: "bind", Source: "/sys/fs", Options: []string{"rbind", "rshared"}})
		},
		"the host's PID namespace": func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] },
		"a terminal": func(s *specs.Spec) {
			s.Process.Terminal = true
			s.Process.ConsoleSize = &specs.Box{Width: 91, Height: 33}
			s.Process.User = specs.User{UID: 1000, GID: 1000}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			reports := map[string][2][]string{}
			for _, way := range []string{"", "1"} {
				t.Setenv("MONOPOD_ONLY_LIBCONTAINER", way)
				n := newNode(t)
				n.start(n.bundle("a", change, "sh", "-c", look+"\nsleep 1000"))
				path := filepath.Join(n.dir, "a", "log")
				eventually(t, "the report is whole", func() bool {
					return strings.Contains(readFile(path), "== end")
				})
				n.awaitPrinted("a")
				first := append(normal(n, strings.Join(texts(readLog(t, path)), "\n")), n.descriptors("a")...)
				reports[way] = [2][]string{first, normal(n, n.lookAgain("a"))}
				record := readFile(filepath.Join(n.cfg.Dir, "containers", "a", "record.json"))
				if spawned := strings.Contains(record, `"spawned":true`); spawned != (way == "") {
					t.Fatalf("started by package spawn: %t, want %t", spawned, way == "")
				}
			}
			for i, what := range []string{"the first process", "a further process"} {
				ours, theirs := reports[""][i], withoutRoom(reports["1"][i])
				for _, line := range missing(ours, theirs) {
					t.Errorf("%s: libcontainer's has, ours lacks: %s", what, line)
				}
				for _, line := range missing(theirs, ours) {
					t.Errorf("%s: ours has, libcontainer's lacks: %s", what, line)
				}
			}
		})
	}
}

// withoutRoom is a report with the one difference that is meant: libcontainer leaves the folder of all cgroup hierarchies writable in a container that may not write to
// any of them, a tmpfs without a limit (CVE-2023-25809); ours is as read-only as they are.
func withoutRoom(report []string) (all []string) {
	for _, line := range report {
		all = append(all, strings.Replace(line, " /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs ", " /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - tmpfs ", 1))
	}
	return all
}

// awaitPrinted waits until the container has nothing more to print: it sleeps.
func (n *node) awaitPrinted(id ids.ContainerID) {
	n.t.Helper()
	s, err := n.c.State(n.ctx(), id)
	if err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, "the report is printed", func() bool {
		children := readFile("/proc/" + itoa(s.PID) + "/task/" + itoa(s.PID) + "/children")
		for pid := range strings.FieldsSeq(children) {
			if strings.HasPrefix(readFile("/proc/"+pid+"/cmdline"), "sleep") {
				return true
			}
		}
		return strings.HasPrefix(readFile("/proc/"+itoa(s.PID)+"/cmdline"), "sleep")
	})
}

// descriptors lists the kinds of what the container's first process has open.
func (n *node) descriptors(id ids.ContainerID) (kinds []string) {
	n.t.Helper()
	s, err := n.c.State(n.ctx(), id)
	if err != nil {
		n.t.Fatal(err)
	}
	dir := "/proc/" + itoa(s.PID) + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			n.t.Fatal(err)
		}
		kind, _, _ := strings.Cut(target, ":")
		kinds = append(kinds, "descriptor "+e.Name()+" "+kind)
	}
	return kinds
}

// lookAgain is the report of a further process.
func (n *node) lookAgain(id ids.ContainerID) string {
	n.t.Helper()
	var spec specs.Spec
	if err := json.Unmarshal([]byte(readFile(filepath.Join(n.dir, string(id), "config.json"))), &spec); err != nil {
		n.t.Fatal(err)
	}
	p := spec.Process
	p.Args, p.Terminal = []string{"sh", "-c", look}, false
	r, w, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	done := make(chan error, 1)
	go func() {
		_, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: id, ExecID: "look", Process: p, Stdout: true}, w)
		w.Close()
		done <- err
	}()
	raw, err := io.ReadAll(r)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
	return string(raw)
}

// missing returns the lines of want that got lacks.
func missing(got, want []string) (out []string) {
	left := map[string]int{}
	for _, l := range got {
		left[l]++
	}
	for _, l := range want {
		if left[l]--; left[l] < 0 {
			out = append(out, l)
		}
	}
	return out
}
