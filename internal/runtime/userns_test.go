package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/kit/ids"
)

const userFirst, userLength = 5 << 16, 1 << 16

func userNamespace() *cri.UserNamespace {
	m := func() []*cri.IDMapping { return []*cri.IDMapping{{HostId: userFirst, Length: userLength}} }
	return &cri.UserNamespace{Uids: m(), Gids: m()}
}

// userPod is the configuration of a pod with a user namespace, as kubelets make it.
func (n *node) userPod(name string) *cri.PodSandboxConfig {
	cfg := n.sandboxConfig(name)
	cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userNamespace()
	return cfg
}

func userShell(name, script string) *cri.ContainerConfig {
	cfg := shell(name, script)
	cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userNamespace()
	return cfg
}

// userNode starts a node whose pods can have user namespaces. Where the kernel has none it returns nil, after it was seen that they
// are refused.
func userNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.check(os.Chmod(n.dir, 0o711))
	if n.features().GetUserNamespaces() {
		return n
	}
	_, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.userPod("refused")})
	wantCode(t, err, codes.FailedPrecondition, "userns_options", "this host cannot give a pod a user namespace")
	t.Logf("this host has no user namespaces for pods: %v", err)
	return nil
}

func (n *node) runUser(name string) string {
	n.Helper()
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.userPod(name)})
	n.check(err)
	return resp.GetPodSandboxId()
}

// ownedBy fails the test unless the path belongs, on the host, to the user and group.
func (n *node) ownedBy(path string, uid, gid uint32) {
	n.Helper()
	var st unix.Stat_t
	n.check(unix.Lstat(path, &st))
	if st.Uid != uid || st.Gid != gid {
		n.Errorf("on the host %s belongs to %d:%d, want %d:%d", path, st.Uid, st.Gid, uid, gid)
	}
}

func TestUserNamespace(t *testing.T) {
	n := userNode(t)
	if n == nil {
		return
	}
	sb := n.runUser("user")
	if st := n.sandboxStatus(sb); st.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions().GetUids()[0].GetHostId() != userFirst || st.GetNetwork().GetIp() == "" {
		t.Errorf("status %v", st)
	}
	all := func(script string) string { // every line begins with a name
		t.Helper()
		return n.output(sb, userShell("c", script))
	}
	want := func(got string, lines ...string) {
		t.Helper()
		for _, l := range lines {
			if !strings.Contains("\n"+got+"\n", "\n"+l+"\n") {
				t.Errorf("no line %q in:\n%s", l, got)
			}
		}
	}
	t.Run("inside", func(t *testing.T) {
		got := all(`echo map $(cat /proc/self/uid_map); echo gids $(cat /proc/self/gid_map); echo id $(id -u):$(id -g)
			for p in / /bin /bin/busybox /etc/passwd /dev/shm /dev/null /etc/hosts /etc/resolv.conf /etc/hostname /proc /sys; do echo owner $p $(stat -c %u:%g $p); done
			chown 1000:1000 /tmp && echo chown $(stat -c %u:%g /tmp)
			mount -t tmpfs none /tmp 2>/dev/null || echo mount refused
			hostname; echo 10.9.9.9 other >> /etc/hosts && echo hosts written
			echo out > /dev/stdout; echo err > /dev/stderr
			touch /dev/shm/f && echo shm $(stat -c %u /dev/shm/f)
			cat /proc/sys/net/ipv4/ip_forward >/dev/null && echo sys; ip addr show eth0 | grep -q inet && echo address
			ls -ld /sys/fs/cgroup >/dev/null && echo cgroup; cat /proc/1/cmdline > /dev/null && echo pid1`)
		want(got, fmt.Sprintf("map 0 %d %d", userFirst, userLength), fmt.Sprintf("gids 0 %d %d", userFirst, userLength), "id 0:0",
			"owner / 0:0", "owner /bin 0:0", "owner /bin/busybox 0:0", "owner /etc/passwd 0:0", "owner /dev/shm 0:0", "owner /etc/hosts 0:0",
			"owner /etc/resolv.conf 0:0", "owner /etc/hostname 0:0", "owner /proc 65534:65534", "owner /sys 65534:65534",
			"chown 1000:1000", "mount refused", "user", "hosts written", "out", "err", "shm 0", "sys", "address", "cgroup", "pid1")
	})
	t.Run("writable layer", func(t *testing.T) {
		id := n.launch(sb, userShell("w", "echo mine > /file; chown 7:8 /file; echo more >> /etc/passwd; touch /ready; "+sleeper))
		n.eventually("the file", func() bool { return strings.Contains(n.exec(id, "ls", "/"), "ready") })
		upper := filepath.Join(n.dir, "data/containers", id, "upper")
		n.ownedBy(upper, userFirst, userFirst)
		n.ownedBy(filepath.Join(upper, "file"), userFirst+7, userFirst+8)
		n.ownedBy(filepath.Join(upper, "etc/passwd"), userFirst, userFirst) // copied up
		var st unix.Stat_t
		pid := n.processID(id)
		n.check(unix.Stat(fmt.Sprintf("/proc/%d", pid), &st))
		if st.Uid != userFirst {
			t.Errorf("the container's process belongs to %d on the host", st.Uid)
		}
	})
	t.Run("as kubelets ask", func(t *testing.T) {
		cfg := userShell("k", "cat /proc/kcore | wc -c; echo 1 > /proc/sys/kernel/panic; echo adj $(cat /proc/self/oom_score_adj); grep -c . /proc/sys/kernel/hostname; grep NoNewPrivs /proc/self/status")
		sc := cfg.Linux.SecurityContext
		sc.MaskedPaths = []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware"}
		sc.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
		sc.NoNewPrivs, sc.Seccomp = true, &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
		sc.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}}
		cfg.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: 700, CpuShares: 2, CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20}
		want(n.output(sb, cfg), "0", "adj 700", "1", "NoNewPrivs:\t1")
	})
	t.Run("users", func(t *testing.T) {
		cfg := userShell("app", "id -u; id -G; touch /home/x 2>/dev/null || echo denied; echo own > /tmp/x && stat -c %u:%g /tmp/x; echo > /dev/stdout && echo reopened")
		cfg.Linux.SecurityContext.RunAsUsername = "app"
		cfg.Linux.SecurityContext.SupplementalGroups = []int64{2000}
		if got := n.output(sb, cfg); got != "1000\n1000 29 2000\ndenied\n1000:1000\n\nreopened" {
			t.Errorf("%q", got)
		}
		cfg.Linux.SecurityContext.RunAsUsername, cfg.Linux.SecurityContext.RunAsUser = "", &cri.Int64Value{Value: userLength}
		_, err := n.tryCreate(sb, cfg)
		wantCode(t, err, codes.InvalidArgument, "run_as_user", "65536")
	})
	t.Run("exec", func(t *testing.T) {
		id := n.launch(sb, userShell("e", sleeper))
		if got, want := n.exec(id, "sh", "-c", "echo $(cat /proc/self/uid_map); id -u; stat -c %u /; echo x > /dev/stdout"), fmt.Sprintf("0 %d %d\n0\n0\nx", userFirst, userLength); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("devices, terminal, read-only root", func(t *testing.T) {
		cfg := userShell("d", "head -c 4 /dev/my | wc -c; head -c 2 /dev/urandom | wc -c; tty; touch /x 2>&1; stat -c %u $(tty); echo $CDI; head -c 3 /dev/widget | wc -c; stat -c '%a %u:%g %n' /dev/my /dev/widget")
		n.check(os.MkdirAll(filepath.Join(n.dir, "cdi"), 0o755))
		n.check(os.WriteFile(filepath.Join(n.dir, "cdi/w.json"), []byte(`{"cdiVersion": "0.6.0", "kind": "example.com/widget", "devices": [{"name": "w1",
			"containerEdits": {"env": ["CDI=injected"], "deviceNodes": [{"path": "/dev/widget", "hostPath": "/dev/zero", "uid": 7, "gid": 8, "fileMode": 384}]}}]}`), 0o644))
		cfg.CDIDevices = []*cri.CDIDevice{{Name: "example.com/widget=w1"}}
		cfg.Devices = []*cri.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/my", Permissions: "rw"}}
		cfg.Tty, cfg.Linux.SecurityContext.ReadonlyRootfs = true, true
		cfg.Linux.SecurityContext.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
		got := strings.ReplaceAll(n.output(sb, cfg), "\r", "")
		want(got, "4", "2", "injected", "3", "666 0:0 /dev/my", "600 7:8 /dev/widget", "/dev/pts/0", "touch: /x: Read-only file system", "0")
		id := n.launch(sb, userShell("t", sleeper))
		if got := n.exec(id, "sh", "-c", "ls -ld /dev/pts/ptmx | cut -c 1-10"); got != "crw-rw-rw-" {
			t.Errorf("terminals: %s", got)
		}
	})
	t.Run("privileged", func(t *testing.T) {
		pod := n.userPod("privileged")
		pod.Linux.SecurityContext.Privileged = true
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
		n.check(err)
		cfg := userShell("p", "mkdir /m && mount -t tmpfs none /m && echo mounted; ip link set lo down && echo network; echo 1 > /proc/sys/vm/drop_caches || echo the host is not its own; [ -c /dev/full ] && echo devices")
		cfg.Linux.SecurityContext.Privileged = true
		want(n.output(resp.GetPodSandboxId(), cfg), "mounted", "network", "the host is not its own", "devices")
		n.removeSandbox(resp.GetPodSandboxId())
	})
	t.Run("shared processes", func(t *testing.T) {
		pod := n.userPod("processes")
		pod.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
		n.check(err)
		first := userShell("first", "sleep 4711")
		first.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
		n.launch(resp.GetPodSandboxId(), first)
		second := userShell("second", "until grep -q 4711 /proc/[0-9]*/cmdline; do sleep 0.02; done; echo map $(cat /proc/1/uid_map); echo $$ | grep -vc '^1$'")
		second.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
		want(n.output(resp.GetPodSandboxId(), second), fmt.Sprintf("map 0 %d %d", userFirst, userLength), "1")
		n.removeSandbox(resp.GetPodSandboxId())
	})
	t.Run("shared memory", func(t *testing.T) {
		writer := n.launch(sb, userShell("writer", "echo shared > /dev/shm/pod; "+sleeper))
		n.eventually("the file", func() bool { return strings.Contains(n.exec(writer, "ls", "/dev/shm"), "pod") })
		if got := all("cat /dev/shm/pod; readlink /proc/self/ns/user | wc -l"); got != "shared\n1" {
			t.Error(got)
		}
		n.ownedBy(filepath.Join(n.dir, "run/sandboxes", sb, "tmpfs/shm/pod"), userFirst, userFirst)
	})
	t.Run("restart", func(t *testing.T) {
		id := n.launch(sb, userShell("r", sleeper))
		n.restart()
		if got := n.exec(id, "id", "-u"); got != "0" {
			t.Error(got)
		}
		want(all("echo map $(cat /proc/self/uid_map)"), fmt.Sprintf("map 0 %d %d", userFirst, userLength))
		n.removeSandbox(sb)
		if list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{}); err != nil || len(list.GetItems()) != 0 {
			t.Errorf("left %v, %v", list, err)
		}
		n.wantNothing()
	})
}

func (n *node) processID(id string) int {
	n.Helper()
	held, err := n.executor.State(n.ctx, ids.ContainerID(id))
	n.check(err)
	return held.PID
}

func TestUserNamespaceVolumes(t *testing.T) {
	n := userNode(t)
	if n == nil {
		return
	}
	sb := n.runUser("volumes")
	n.loadData()
	vol, mem, group := filepath.Join(n.dir, "vol"), filepath.Join(n.dir, "mem"), filepath.Join(n.dir, "group")
	for _, dir := range []string{vol, mem, group} {
		n.check(os.MkdirAll(dir, 0o755))
	}
	n.check(os.WriteFile(filepath.Join(vol, "f"), []byte("x"), 0o600))
	n.check(os.Chown(filepath.Join(vol, "f"), 1000, 1000))
	n.check(mount.Tmpfs(mem, mount.TmpfsOptions{}))
	defer func() { n.check(mount.UnmountBelow(mem)) }()
	// As kubelets prepare a volume for fsGroup 2000.
	n.check(os.Chown(group, 0, 2000))
	n.check(os.Chmod(group, os.ModeSetgid|0o775))
	hidden := filepath.Join(n.dir, "hidden/vol") // behind a directory that the pod's root cannot pass
	n.check(os.MkdirAll(hidden, 0o755))
	n.check(os.Chmod(filepath.Dir(hidden), 0o700))

	u := userNamespace()
	mapped := func(host, path string) *cri.Mount {
		return &cri.Mount{HostPath: host, ContainerPath: path, UidMappings: u.Uids, GidMappings: u.Gids}
	}
	cfg := userShell("c", `stat -c '%n %u:%g' /vol/f /vol /mem /group /image/models/a /image /sub /plain/f
		echo mine > /vol/mine; touch /mem/mine /hidden/mine; cat /vol/f; echo
		touch /image/x 2>&1; touch /ro/x 2>&1; cat /plain/f 2>&1; echo x > /plain/new 2>&1; /noexec/tool 2>&1`)
	cfg.Mounts = []*cri.Mount{mapped(vol, "/vol"), mapped(mem, "/mem"), mapped(group, "/group"), mapped(hidden, "/hidden"), mapped(vol, "/ro"),
		imageMount("/image", data, ""), imageMount("/sub", data, "models"), {HostPath: vol, ContainerPath: "/plain"}, imageMount("/noexec", data, "")}
	cfg.Mounts[4].Readonly, cfg.Mounts[4].RecursiveReadOnly = true, true
	cfg.Mounts[6].UidMappings, cfg.Mounts[6].GidMappings = u.Uids, u.Gids
	cfg.Mounts[8].MountOptions = []string{"noexec"}
	got := n.output(sb, cfg)
	for _, want := range []string{"/vol/f 1000:1000\n", "/vol 0:0\n", "/mem 0:0\n", "/group 0:2000\n", "/image/models/a 7:8\n", "/image 0:0\n", "/sub 0:0\n", "/plain/f 65534:65534\n",
		"\nx\n", "/image/x: Read-only", "/ro/x: Read-only", "'/plain/f': Permission denied", "/plain/new: Permission denied", "/noexec/tool: Permission denied"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	n.ownedBy(filepath.Join(vol, "mine"), 0, 0)
	n.ownedBy(filepath.Join(mem, "mine"), 0, 0)
	n.ownedBy(filepath.Join(hidden, "mine"), 0, 0)

	// A member of the group writes, and what it makes belongs to the group, as SGID on the directory says.
	cfg = userShell("g", "echo by app > /group/f && stat -c %u:%g /group/f")
	cfg.Mounts = []*cri.Mount{mapped(group, "/group")}
	cfg.Linux.SecurityContext.RunAsUser, cfg.Linux.SecurityContext.SupplementalGroups = &cri.Int64Value{Value: 1000}, []int64{2000}
	if got := n.output(sb, cfg); got != "1000:2000" {
		t.Error(got)
	}
	n.ownedBy(filepath.Join(group, "f"), 1000, 2000)

	// A mount may be mapped in another way than its pod.
	cfg = userShell("shift", "stat -c %u:%g /vol/f /image/models/a")
	shift := []*cri.IDMapping{{ContainerId: 1000, HostId: userFirst + 5, Length: 1}, {ContainerId: 0, HostId: userFirst + 63, Length: 100}}
	cfg.Mounts = []*cri.Mount{mapped(vol, "/vol"), imageMount("/image", data, "")}
	for _, m := range cfg.Mounts {
		m.UidMappings, m.GidMappings = shift, shift
	}
	if got := n.output(sb, cfg); got != "5:5\n70:71" {
		t.Error(got)
	}
	n.wantNothing()
	n.removeSandbox(sb)
}

// TestUserNamespaceOfOCIRuntime: what the specification says suffices for another runtime.
func TestUserNamespaceOfOCIRuntime(t *testing.T) {
	n := withRunc(t)
	resp, err := n.rt.Status(n.ctx, &cri.StatusRequest{})
	n.check(err)
	features := map[string]bool{}
	for _, h := range resp.GetRuntimeHandlers() {
		features[h.GetName()] = h.GetFeatures().GetUserNamespaces()
	}
	if features["runc"] != features["native"] || features["mute"] {
		t.Errorf("user namespaces: %v", features)
	}
	run := func(handler string) (string, error) {
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.userPod("pod-" + handler), RuntimeHandler: handler})
		return resp.GetPodSandboxId(), err
	}
	_, err = run("mute")
	wantCode(t, err, codes.FailedPrecondition, "userns_options")
	if !features["runc"] {
		return
	}
	n.check(os.Chmod(n.dir, 0o711))
	sb, err := run("runc")
	n.check(err)
	n.loadData()
	vol := filepath.Join(n.dir, "vol")
	n.check(os.MkdirAll(vol, 0o755))
	cfg := userShell("c", "echo map $(cat /proc/self/uid_map); stat -c '%u:%g %n' / /vol /image/models/a; echo > /vol/f; head -c 2 /dev/my | wc -c; echo err > /dev/stderr; "+sleeper)
	u := userNamespace()
	cfg.Mounts = []*cri.Mount{{HostPath: vol, ContainerPath: "/vol", UidMappings: u.Uids, GidMappings: u.Gids}, imageMount("/image", data, ""), {HostPath: "/", ContainerPath: "/host"}}
	cfg.Devices = []*cri.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/my"}}
	id := n.launch(sb, cfg)
	// stdout and stderr are two pipes: nobody promises an order between their lines.
	for _, want := range []string{fmt.Sprintf(" stdout F map 0 %d %d", userFirst, userLength), " stdout F 0:0 /", " stdout F 0:0 /vol", " stdout F 7:8 /image/models/a",
		" stdout F 2", " stderr F err"} {
		n.eventually("the line"+want, func() bool {
			return slices.ContainsFunc(n.logLines(n.status(id).GetLogPath()), func(line string) bool { return strings.HasSuffix(line, want) })
		})
	}
	n.ownedBy(filepath.Join(vol, "f"), 0, 0)
	if got := n.exec(id, "sh", "-c", "id -u; cat /image/models/b; echo reopened > /dev/stdout"); got != "0\nbelowreopened" {
		t.Error(got)
	}
	n.removeSandbox(sb)
	n.wantNothing()
}

func TestUserNamespaceRefused(t *testing.T) {
	n := userNode(t)
	if n == nil {
		return
	}
	if resp, err := n.rt.Status(n.ctx, &cri.StatusRequest{}); err != nil || resp.GetFeatures().GetUserNamespacesHostNetwork() {
		t.Errorf("it is said that a user namespace goes with the host's network: %v, %v", resp, err)
	}
	sb, plain := n.runUser("pod"), n.run("plain")
	cfg := shell("node", sleeper)
	cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}
	_, err := n.tryCreate(sb, cfg)
	wantCode(t, err, codes.InvalidArgument, "userns_options", "NODE")
	_, err = n.tryCreate(plain, userShell("pod", sleeper))
	wantCode(t, err, codes.InvalidArgument, "userns_options", "POD")
	other := userShell("other", sleeper)
	other.Linux.SecurityContext.NamespaceOptions.UsernsOptions.Uids[0].HostId++
	_, err = n.tryCreate(sb, other)
	wantCode(t, err, codes.InvalidArgument, "userns_options", "uids")
	cannot := userShell("cannot", sleeper)
	cannot.Mounts = []*cri.Mount{{HostPath: "/proc", ContainerPath: "/host", UidMappings: userNamespace().Uids, GidMappings: userNamespace().Gids}}
	_, err = n.tryCreate(sb, cannot)
	wantCode(t, err, codes.FailedPrecondition, "/host", "uidMappings", "/proc", "file system")
	for name, change := range map[string]func(o *cri.NamespaceOption){
		"network":          func(o *cri.NamespaceOption) { o.Network = cri.NamespaceMode_NODE },
		"ipc":              func(o *cri.NamespaceOption) { o.Ipc = cri.NamespaceMode_NODE },
		"pid":              func(o *cri.NamespaceOption) { o.Pid = cri.NamespaceMode_NODE },
		"userns_options":   func(o *cri.NamespaceOption) { o.UsernsOptions.Mode = cri.NamespaceMode_NODE },
		"uids: 0 mappings": func(o *cri.NamespaceOption) { o.UsernsOptions.Uids = nil },
		"gids: 2 mappings": func(o *cri.NamespaceOption) { o.UsernsOptions.Gids = append(o.UsernsOptions.Gids, &cri.IDMapping{}) },
	} {
		cfg := n.userPod("refused")
		change(cfg.GetLinux().GetSecurityContext().GetNamespaceOptions())
		_, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
		wantCode(t, err, codes.InvalidArgument, name)
	}
	// The pod's root is an ordinary user on the host, whom a closed directory does not let through.
	n.check(os.Chmod(n.dir, 0o700))
	_, err = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.userPod("closed")})
	wantCode(t, err, codes.FailedPrecondition, "userns_options", n.dir, "chmod")
	for _, point := range []string{"runtime/sandbox-run/persisted", "network/setup/assigned", "runtime/sandbox-run/built"} {
		n.check(os.Chmod(n.dir, 0o711))
		rt := n.rt
		n.crash(point, func() {
			_, _ = rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.userPod("half")})
		})
	}
	if left, err := filepath.Glob(filepath.Join(n.dir, "run/sandboxes/*")); err != nil || len(left) != 2 {
		t.Errorf("left %v, %v", left, err)
	}
	n.loadData()
	cfg = userShell("half", sleeper)
	cfg.Mounts = []*cri.Mount{imageMount("/v", data, ""), {HostPath: "/", ContainerPath: "/host"}}
	cfg.Devices = []*cri.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/my"}}
	rt := n.rt
	n.crash("runtime/container-create/created", func() {
		_, _ = rt.CreateContainer(n.ctx, &cri.CreateContainerRequest{PodSandboxId: sb, Config: cfg})
	})
	n.wantNothing()
	n.launch(sb, cfg)
}
