package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The process runs itself as nobody to see what an unprivileged user is told.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PROBE_TEST_AS_NOBODY"); dir != "" {
		err := WriteJSON(os.Stdout, Run(context.Background(), wholeConfig(dir)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if hostNetns, err = os.Readlink("/proc/self/ns/net"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// hostNetns is the network namespace in which the process began.
var hostNetns string

func wholeConfig(dir string) Config {
	return Config{
		Containers: true,
		DataDir:    filepath.Join(dir, "data"),
		CgroupRoot: "/mp-check-test/sub",
		Dirs:       []Place{{Name: "data", Path: filepath.Join(dir, "data"), Flag: "--data-dir"}},
		Ports:      []Port{{Name: "api", Address: "127.0.0.1", Port: 0, Flag: "--api-port"}},
		Sockets:    []Socket{{Name: "cri", Path: filepath.Join(dir, "cri.sock"), Flag: "--cri-socket"}},
	}
}

func one(t *testing.T, results []Result, name string) Result {
	t.Helper()
	for _, r := range results {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no result %q among %+v", name, results)
	return Result{}
}

// inventory lists what the checks could leave on the host.
func inventory(t *testing.T, dir string) []string {
	t.Helper()
	var things []string
	for _, pattern := range []string{dir + "/*", "/sys/fs/cgroup/monopod-check-*", "/sys/fs/cgroup/*/monopod-check-*", "/var/lib/monopod-check-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		things = append(things, found...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			things = append(things, line)
		}
	}
	list, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		if n := l.Attrs().Name; n == "br0" || n == "veth0" || n == "veth1" {
			things = append(things, "link "+n)
		}
	}
	return things
}

// This host builds and tests the product, so it must be able to run it; and it must look afterwards as before.
func TestRunOnThisHostLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	ignore := goleak.IgnoreCurrent()
	before := inventory(t, dir)
	results := Run(t.Context(), wholeConfig(dir))
	if err := Err(results); err != nil {
		t.Errorf("this host cannot run a node:\n%v", err)
	}
	if after := inventory(t, dir); !slices.Equal(after, before) {
		t.Errorf("left behind: %q", after)
	}
	goleak.VerifyNone(t, ignore)

	want := []string{"root", "kernel", "capabilities", "namespace mnt", "namespace net", "namespace ipc", "namespace uts", "namespace pid",
		"namespace cgroup", "namespace user", "cgroups", "overlayfs", "bridge, veth", "nftables", "ip_forward", "ipv6", "seccomp", "pidfd",
		"inotify", "disk space", "directory data", "socket cri", "port api"}
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
		if r.Found == "" || (r.Remedy == "") != (r.Status == OK) {
			t.Errorf("%+v: wants something found, and a remedy unless it is OK", r)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("checks %q\nwant   %q", names, want)
	}
}

func TestAnUnprivilegedUserIsToldWhatIsMissing(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "mp-probe-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "probe.test")
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = []string{"PROBE_TEST_AS_NOBODY=" + dir}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("as nobody (this test needs root to become nobody): %v", err)
	}
	var results []Result
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for name, part := range map[string]string{
		"root": "sudo", "capabilities": "full privileges", "namespace net": "run as root", "namespace mnt": "run as root",
		"cgroups": "--cgroup-root", "overlayfs": "root", "bridge, veth": "run as root", "nftables": "run as root",
		"directory data": "--data-dir",
	} {
		if r := one(t, results, name); r.Status != Fail || !strings.Contains(r.Remedy, part) {
			t.Errorf("%+v, want a failure whose remedy says %q", r, part)
		}
	}
	if err := Err(results); strings.Count(err.Error(), "\n") < 9 {
		t.Errorf("one line for each failure, got %v", err)
	}
	if Worst(results) != Fail {
		t.Error("the worst is not Fail")
	}
}

func TestAnAPIServerAloneAsksForLess(t *testing.T) {
	cfg := wholeConfig(t.TempDir())
	cfg.Containers = false
	for _, r := range Run(t.Context(), cfg) {
		if r.Name == "root" || strings.HasPrefix(r.Name, "namespace") || r.Name == "overlayfs" {
			t.Errorf("asked: %+v", r)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := Run(ctx, cfg); len(r) != 0 {
		t.Errorf("after its end: %+v", r)
	}
}

// An agent whose containers somebody else's runtime runs needs root, its directories, its files and its port, and nothing that containers are made of.
func TestAnAgentAloneAsksForLess(t *testing.T) {
	dir := t.TempDir()
	cfg := wholeConfig(dir)
	cfg.Containers, cfg.Agent = false, true
	cfg.Files = []Place{{Name: "serving key", Path: filepath.Join(dir, "key"), Flag: "--serving-key"}}
	cfg.Sockets[0].Asked = true
	results := Run(t.Context(), cfg)
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
	}
	want := []string{"root", "kernel", "capabilities", "inotify", "disk space", "directory data", "file serving key", "socket cri", "port api"}
	if !slices.Equal(names, want) {
		t.Errorf("checks %q\nwant   %q", names, want)
	}
	expect(t, one(t, results, "file serving key"), Fail, filepath.Join(dir, "key"), "--serving-key")
	expect(t, one(t, results, "socket cri"), Warn, "not there yet", "--cri-socket")
	expect(t, readable(Place{"serving key", dir, "--serving-key"}), Fail, "is no file")
	if err := os.WriteFile(filepath.Join(dir, "key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, readable(cfg.Files[0]), OK, "key")
}

// expect checks a result's status, and that it says what it should.
func expect(t *testing.T, r Result, status Status, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(r.Found+" | "+r.Remedy, p) {
			t.Errorf("%+v does not say %q", r, p)
		}
	}
	if r.Status != status {
		t.Errorf("%+v, want %s", r, status)
	}
}

func TestKernel(t *testing.T) {
	for release, status := range map[string]Status{"6.1.0-56-cloud-amd64": OK, "5.10.0": OK, "5.4.0-100-generic": Warn, "5.2.21": Fail, "4.19.0": Fail, "10.0": OK, "weird": Warn} {
		sys := system{release: func() (string, error) { return release, nil }}
		expect(t, sys.kernel(), status, release)
	}
	sys := system{release: func() (string, error) { return "", unix.EFAULT }}
	expect(t, sys.kernel(), Fail, "bad address")
}

func TestRoot(t *testing.T) {
	expect(t, system{euid: func() int { return 1000 }}.root(), Fail, "user id 1000", "sudo")
	expect(t, system{euid: func() int { return 0 }}.root(), OK)
}

// procWith makes a /proc with the files given.
func procWith(t *testing.T, files map[string]string) system {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return system{proc: dir, euid: func() int { return 0 }}
}

func TestCapabilities(t *testing.T) {
	with := func(eff string) system {
		return procWith(t, map[string]string{"self/status": "Name:\tx\nCapEff:\t" + eff + "\n", "sys/kernel/cap_last_cap": "40\n"})
	}
	expect(t, with("000001ffffffffff").capabilities(knownCapabilities), OK, "all 41")
	expect(t, with("000001fffeffffff").capabilities(knownCapabilities), Warn, "CAP_SYS_RESOURCE missing", "oom_score_adj")
	expect(t, with("000000ffffffffff").capabilities(knownCapabilities), Warn, "capability 40 missing")
	expect(t, with("000001ffffdfffff").capabilities(knownCapabilities), Fail, "CAP_SYS_ADMIN missing", "no container can be made")
	expect(t, procWith(t, nil).capabilities(knownCapabilities), Fail, "mount proc")
	expect(t, procWith(t, map[string]string{"self/status": "CapEff:\tzz\n"}).capabilities(knownCapabilities), Fail)
	expect(t, procWith(t, map[string]string{"self/status": "Name: x\n"}).capabilities(knownCapabilities), Fail, "no line CapEff")
	// An agent needs less.
	expect(t, with("000001ffffffefff").capabilities(knownCapabilities), Fail, "CAP_NET_ADMIN missing", "no pod network")
	expect(t, with("000001ffffffefff").capabilities(agentCapabilities), Warn, "capability 12 missing")
	expect(t, with("000001ffffdfffff").capabilities(agentCapabilities), Fail, "CAP_SYS_ADMIN missing", "volumes in memory")
}

func TestNamespaceErrorsHaveRemedies(t *testing.T) {
	sys := procWith(t, map[string]string{"self/ns/net": ""})
	with := func(err error) system {
		sys.clone = func(uintptr) error { return err }
		return sys
	}
	netns, userns := namespaces[1], namespaces[len(namespaces)-1]
	expect(t, with(nil).namespace(netns), OK)
	expect(t, with(unix.ENOSPC).namespace(netns), Fail, "user.max_net_namespaces")
	expect(t, with(unix.EPERM).namespace(netns), Fail, "start it privileged")
	expect(t, with(unix.EINVAL).namespace(netns), Fail, "invalid argument", "use a kernel that has it")
	expect(t, with(unix.EPERM).namespace(userns), Warn, "hostUsers: false")
}

func TestForwarding(t *testing.T) {
	const path = "sys/net/ipv4/ip_forward"
	expect(t, procWith(t, map[string]string{path: "1\n"}).forwarding(), OK, "on")
	expect(t, procWith(t, map[string]string{path: "0\n"}).forwarding(), OK, "a node turns it on")
	expect(t, procWith(t, nil).forwarding(), Fail, "mount proc")
}

func TestIPv6(t *testing.T) {
	host := func(all, dflt, forwarding string) system {
		return procWith(t, map[string]string{"sys/net/ipv6/conf/all/disable_ipv6": all, "sys/net/ipv6/conf/default/disable_ipv6": dflt, "sys/net/ipv6/conf/all/forwarding": forwarding})
	}
	expect(t, host("0\n", "0\n", "1\n").ipv6(), OK, "on, with forwarding")
	expect(t, host("0\n", "0\n", "0\n").ipv6(), OK, "a node turns forwarding on")
	expect(t, host("1\n", "0\n", "0\n").ipv6(), OK, "net.ipv6.conf.all.disable_ipv6", "IPv4 addresses only")
	expect(t, host("0\n", "1\n", "0\n").ipv6(), OK, "net.ipv6.conf.default.disable_ipv6")
	expect(t, procWith(t, nil).ipv6(), OK, "not in this kernel")
	half := procWith(t, map[string]string{"sys/net/ipv6/conf/all/disable_ipv6": "0\n", "sys/net/ipv6/conf/default/disable_ipv6": "0\n"})
	expect(t, half.ipv6(), Warn, "cannot be turned on", "net.ipv6.conf.all.forwarding")
}

func TestInotify(t *testing.T) {
	limits := func(instances, watches string) system {
		return procWith(t, map[string]string{"sys/fs/inotify/max_user_instances": instances, "sys/fs/inotify/max_user_watches": watches})
	}
	expect(t, limits("128\n", "65536\n").inotify(), OK, "128 instances, 65536 watches")
	expect(t, limits("16\n", "65536\n").inotify(), Warn, "fs.inotify.max_user_instances to 128")
	expect(t, procWith(t, nil).inotify(), Warn)
}

func TestCgroups(t *testing.T) {
	sys := hostSystem()
	expect(t, sys.cgroups("/mp-check-test/a/b"), one(t, Run(t.Context(), wholeConfig(t.TempDir())), "cgroups").Status)
	sys.cgroup = filepath.Join(t.TempDir(), "none")
	expect(t, sys.cgroups("/x"), Fail, "mount cgroup2 at "+sys.cgroup)
	sys.cgroup = t.TempDir() // neither v2 nor any v1 hierarchy in it
	expect(t, sys.cgroups("/x"), Fail, "without cpu, devices, freezer, memory, pids")

	// v1 hierarchies in an invented place: read-only ones cannot take a node.
	v1 := procWith(t, map[string]string{})
	v1.cgroup = t.TempDir()
	var mountinfo strings.Builder
	for i, c := range []string{"cpu,cpuacct", "devices", "freezer", "memory", "pids"} {
		point := filepath.Join(v1.cgroup, c)
		if err := os.Mkdir(point, 0o755); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&mountinfo, "%d 24 0:27 / %s rw,relatime shared:9 - cgroup cgroup rw,%s\n", 30+i, point, c)
	}
	if err := os.MkdirAll(filepath.Join(v1.proc, "self"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v1.proc, "self/mountinfo"), []byte(mountinfo.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	expect(t, v1.cgroups("/mp/x"), Warn, "v1: cpu cpuacct devices freezer memory pids", "without cpuset")
	if left, _ := filepath.Glob(v1.cgroup + "/*/*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := os.RemoveAll(filepath.Join(v1.cgroup, "pids")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/sys", filepath.Join(v1.cgroup, "pids")); err != nil { // where nobody makes a directory
		t.Fatal(err)
	}
	expect(t, v1.cgroups("/mp/x"), Fail, "no cgroup can be made", "--cgroup-root")
}

func TestOverlayAndSpaceWhereThereIsNone(t *testing.T) {
	expect(t, overlay("/proc/none"), Fail)
	expect(t, overlay(filepath.Join(t.TempDir(), "not", "yet")), OK)
	expect(t, space("/sys/none"), Fail, "0 MiB free at /sys")
}

func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, writable(Place{"data", dir, "--data-dir"}), OK, dir)
	expect(t, writable(Place{"data", dir + "/a/b", "--data-dir"}), OK, "will be made")
	expect(t, writable(Place{"data", file, "--data-dir"}), Fail, file+" is not a directory", "--data-dir")
	expect(t, writable(Place{"data", file + "/sub", "--data-dir"}), Fail, file+" is not a directory")
	expect(t, writable(Place{"data", "/proc/sys/x", "--data-dir"}), Fail, "no file can be made in /proc/sys", "--data-dir")
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestSockets(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "mp-probe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "x.sock")
	s := Socket{Name: "cri", Path: path, Flag: "--cri-socket"}
	expect(t, socket(s), OK, path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	me := fmt.Sprintf("process %d (probe.test)", os.Getpid())
	expect(t, socket(s), Fail, path+" is served by "+me, "--cri-socket")
	s.Shared = true
	expect(t, socket(s), OK, "served by "+me+" (will be used)")
	s.Shared, s.Asked = false, true
	expect(t, socket(s), OK, "served by "+me+" (will be used)")
	l.SetUnlinkOnClose(false)
	l.Close()
	expect(t, socket(s), Warn, "nobody answers", "--cri-socket")
	s.Asked = false
	expect(t, socket(s), OK, "stale")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	expect(t, socket(s), Fail, "not a socket")
	s.Path = "/tmp/" + strings.Repeat("x", 200)
	expect(t, socket(s), Fail, "has 205 bytes", "at most 107")
}

func TestPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := Port{Name: "api", Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Flag: "--api-port"}
	sys := hostSystem()
	expect(t, sys.port(p), Fail, fmt.Sprintf("is in use by process %d (probe.test)", os.Getpid()), "--api-port")
	p.Address = ""
	expect(t, sys.port(p), Fail, "is in use")
	l.Close()
	expect(t, sys.port(p), OK, "is free")
	expect(t, sys.port(Port{Name: "api", Address: "127.0.0.1"}), OK, "any free one")
	expect(t, sys.port(Port{Name: "api", Address: "203.0.113.7", Port: 6443}), Fail, "not an address of this host")
}

func TestSeccompAndPidfdAreAsked(t *testing.T) {
	expect(t, seccomp(), OK)
	expect(t, pidfd(), OK)
}

func TestTheTableFitsTheTerminal(t *testing.T) {
	results := []Result{
		{Name: "kernel", Status: OK, Found: "Linux 6.1"},
		{Name: "capabilities", Status: Warn, Found: "CAP_SYS_RESOURCE missing", Remedy: "without CAP_SYS_RESOURCE oom_score_adj cannot be lowered, nor a limit be raised above the host's"},
		{Name: "port api", Status: Fail, Found: "127.0.0.1:6443 is in use by process 7 (nginx)", Remedy: "stop it, or choose another port with --api-port"},
		{Name: "socket cri", Status: OK, Found: "/" + strings.Repeat("x", 90)},
	}
	var out strings.Builder
	if err := WriteTable(&out, results); err != nil {
		t.Fatal(err)
	}
	want := `ok    kernel        Linux 6.1
WARN  capabilities  CAP_SYS_RESOURCE missing
                    -> without CAP_SYS_RESOURCE oom_score_adj cannot be lowered,
                       nor a limit be raised above the host's
FAIL  port api      127.0.0.1:6443 is in use by process 7 (nginx)
                    -> stop it, or choose another port with --api-port
ok    socket cri    /` + strings.Repeat("x", 90) + "\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := WriteJSON(&out, results[:1]); err != nil {
		t.Fatal(err)
	}
	if want := "[\n  {\n    \"name\": \"kernel\",\n    \"status\": \"OK\",\n    \"found\": \"Linux 6.1\"\n  }\n]\n"; out.String() != want {
		t.Errorf("got %s", out.String())
	}
	if err := Err(results); err == nil || err.Error() != "port api: 127.0.0.1:6443 is in use by process 7 (nginx); stop it, or choose another port with --api-port" {
		t.Errorf("got %v", err)
	}
	if Worst(results) != Fail || Worst(results[:2]) != Warn || Worst(results[:1]) != OK {
		t.Error("the worst of the results")
	}
}

// A thread that was given namespaces of its own is never used for anything else, and it is never the main thread.
func TestThrowawayThreadsAreNotReused(t *testing.T) {
	host := hostNetns
	for range 200 {
		var inside string
		if err := inThrowaway(unix.CLONE_NEWNET, func() (err error) {
			inside, err = os.Readlink("/proc/thread-self/ns/net")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
		for _, thread := range []string{"self", "thread-self"} {
			if now, err := os.Readlink("/proc/" + thread + "/ns/net"); err != nil || now != host || inside == host {
				t.Fatalf("the host's namespace is %s, the one inside %s, that of /proc/%s now %s, %v", host, inside, thread, now, err)
			}
		}
	}
}
