package runtime_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime"
)

// bounding is this process's bounding set, in the form of /proc/PID/status: what a container can have at most.
func bounding(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return procStatus(string(raw), "CapBnd")
}

func TestCapabilitySets(t *testing.T) {
	n := newNode(t)
	sb := n.run("caps")
	const none, bind = "0000000000000000", "0000000000000400" // CAP_NET_BIND_SERVICE
	all := bounding(t)
	type sets struct{ effective, bounding, ambient string }
	for name, c := range map[string]struct {
		caps *cri.Capability
		user int64
		want sets
	}{
		"ALL":                          {&cri.Capability{AddCapabilities: []string{"ALL"}}, 0, sets{all, all, none}},
		"all dropped":                  {&cri.Capability{DropCapabilities: []string{"ALL"}}, 0, sets{none, none, none}},
		"dropped, with and without it": {&cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"cap_net_bind_service"}}, 0, sets{bind, bind, none}},
		"of a user":                    {&cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_BIND_SERVICE"}}, 1000, sets{none, bind, none}},
		"ambient of a user":            {&cri.Capability{DropCapabilities: []string{"ALL"}, AddAmbientCapabilities: []string{"NET_BIND_SERVICE"}}, 1000, sets{bind, bind, bind}},
		"one of the default ones":      {&cri.Capability{DropCapabilities: []string{"CHOWN"}}, 0, sets{"00000000a80425fa", "00000000a80425fa", none}},
	} {
		cfg := shell("c", sleeper)
		cfg.Linux.SecurityContext.Capabilities, cfg.Linux.SecurityContext.RunAsUser = c.caps, &cri.Int64Value{Value: c.user}
		id := n.launch(sb, cfg)
		// A command in the container has what its own process has.
		for of, file := range map[string]string{"container": "/proc/1/status", "command": "/proc/self/status"} {
			out := n.exec(id, "cat", file)
			if got := (sets{procStatus(out, "CapEff"), procStatus(out, "CapBnd"), procStatus(out, "CapAmb")}); got != c.want {
				t.Errorf("%s: the %s has %v, want %v", name, of, got, c.want)
			}
		}
		n.remove(id)
	}
	cfg := shell("c", sleeper)
	cfg.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: []string{"NET_NONSENSE"}}
	_, err := n.tryCreate(sb, cfg)
	wantCode(t, err, codes.InvalidArgument, "add_capabilities", "NET_NONSENSE")
}

// TestCommandsAreConfined: a further process in a container is held by all that holds the container's own.
func TestCommandsAreConfined(t *testing.T) {
	n := newNode(t)
	sb := n.run("exec")
	cfg := shell("c", sleeper)
	sc := cfg.Linux.SecurityContext
	sc.RunAsUsername, sc.SupplementalGroups, sc.NoNewPrivs = "app", []int64{4242}, true
	sc.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	cfg.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: 321}
	id := n.launch(sb, cfg)
	own, command := n.exec(id, "cat", "/proc/1/status"), n.exec(id, "cat", "/proc/self/status")
	for _, field := range []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters"} {
		if a, b := procStatus(own, field), procStatus(command, field); a != b {
			t.Errorf("%s is %q in the container, and %q in a command", field, a, b)
		}
	}
	if procStatus(own, "Seccomp") != "2" || procStatus(own, "NoNewPrivs") != "1" || procStatus(own, "Uid") != "1000 1000 1000 1000" {
		t.Error(own)
	}
	for _, file := range []string{"oom_score_adj", "cgroup"} {
		if a, b := n.exec(id, "cat", "/proc/1/"+file), n.exec(id, "cat", "/proc/self/"+file); a != b {
			t.Errorf("%s is %q in the container, and %q in a command", file, a, b)
		}
	}
	// What the default profile denies to all, root or not.
	if out := n.exec(id, "sh", "-c", "unshare -U true 2>&1 || true"); !strings.Contains(out, "not permitted") {
		t.Errorf("a user namespace was made: %q", out)
	}
}

func TestPaths(t *testing.T) {
	n := newNode(t)
	sb := n.run("paths")
	dir := filepath.Join(n.dir, "secret")
	n.check(os.Mkdir(dir, 0o755))
	n.check(os.WriteFile(filepath.Join(dir, "file"), []byte("hidden"), 0o644))
	// One stream, as nobody promises the order of lines of two.
	cfg := shell("c", `exec 2>&1; cat /data/file; ls /masked; cat /proc/version; echo x > /proc/sys/net/ipv4/ip_forward && echo written; touch /data/new && echo made; cat /proc/no-such 2>/dev/null; echo end`)
	cfg.Mounts = []*cri.Mount{{HostPath: dir, ContainerPath: "/data"}, {HostPath: dir, ContainerPath: "/masked"}}
	sc := cfg.Linux.SecurityContext
	sc.MaskedPaths = []string{"/proc/version", "/masked", "/no/such/path"}
	sc.ReadonlyPaths = []string{"/proc/sys", "/data", "/no/such/path"}
	if out := n.output(sb, cfg); !strings.Contains(out, "hidden") || strings.Contains(out, "Linux version") || strings.Contains(out, "written") || strings.Contains(out, "made") ||
		strings.Contains(out, "\nfile") || !strings.HasSuffix(out, "end") {
		t.Error(out)
	}
}

// TestNoPaths: who names no paths has none, as the proto says and a kubelet needs it, unless the node is set to give the usual ones.
func TestNoPaths(t *testing.T) {
	for _, set := range []bool{false, true} {
		n := prepareNode(t)
		n.change = func(c *runtime.Config) { c.DefaultMaskedPaths = set }
		startNode(n)
		sb := n.run("paths")
		look := func(name string, masked ...string) string {
			cfg := shell(name, "grep -o ' /proc/[^ ]* r[ow]' /proc/self/mountinfo; echo end")
			cfg.Linux.SecurityContext.MaskedPaths = masked
			return n.output(sb, cfg)
		}
		if out := look("none"); strings.Contains(out, "/proc/sys ro") != set || !strings.HasSuffix(out, "end") {
			t.Errorf("set %t: a client that names none gets %s", set, out)
		}
		if out := look("own", "/proc/version"); strings.Contains(out, "/proc/sys ro") || !strings.Contains(out, "/proc/version") {
			t.Errorf("set %t: a client that names one gets %s", set, out)
		}
	}
}

func TestPrivilegedImplies(t *testing.T) {
	n := newNode(t)
	pod := n.sandboxConfig("privileged")
	pod.Linux.SecurityContext.Privileged = true
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
	n.check(err)
	cfg := shell("c", `cat /proc/1/status; cat /proc/version; mknod /tmp/k c 1 11 && (: >> /tmp/k) && echo opened; grep ' /sys ' /proc/self/mountinfo; ls -d /dev/kmsg`)
	sc := cfg.Linux.SecurityContext
	// What "MAY have no effect" has none.
	sc.Privileged, sc.MaskedPaths, sc.ReadonlyPaths = true, []string{"/proc/version"}, []string{"/proc/sys"}
	sc.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}}
	sc.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	sc.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "no-such-profile"}
	sc.SelinuxOptions = &cri.SELinuxOption{Type: "no_such_t"}
	out := n.output(resp.GetPodSandboxId(), cfg)
	for _, field := range []string{"CapEff", "CapBnd"} {
		if got, all := procStatus(out, field), bounding(t); got != all {
			t.Errorf("%s is %s, the host's %s", field, got, all)
		}
	}
	if procStatus(out, "Seccomp") != "0" || !strings.Contains(out, "Linux version") || !strings.Contains(out, "opened") || !strings.Contains(out, "/dev/kmsg") ||
		!strings.Contains(out, "/ /sys rw,") {
		t.Error(out)
	}
	// So is one that is added to a sandbox that was not to be privileged, if the client calls it that by now.
	plainPod := n.sandboxConfig("plain")
	made, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: plainPod})
	n.check(err)
	added := &cri.CreateContainerRequest{PodSandboxId: made.GetPodSandboxId(), Config: shell("added", sleeper), SandboxConfig: plainPod}
	added.Config.Linux.SecurityContext.Privileged = true
	_, err = n.rt.CreateContainer(n.ctx, added)
	wantCode(t, err, codes.InvalidArgument, "privileged", "sandbox")
	plainPod.Linux.SecurityContext.Privileged = true
	debugger, err := n.rt.CreateContainer(n.ctx, added)
	n.check(err)
	n.check(n.tryStart(debugger.GetContainerId()))
	if got, all := procStatus(n.exec(debugger.GetContainerId(), "cat", "/proc/1/status"), "CapEff"), bounding(t); got != all {
		t.Errorf("a container that was added: CapEff is %s, the host's %s", got, all)
	}
	// The other containers of a privileged sandbox are not privileged.
	plain := n.output(resp.GetPodSandboxId(), shell("plain", `cat /proc/1/status; mknod /tmp/k c 1 11 && (: >> /tmp/k) && echo opened; ls /dev`))
	if procStatus(plain, "CapEff") != "00000000a80425fb" || strings.Contains(plain, "opened") || strings.Contains(plain, "kmsg") {
		t.Error(plain)
	}
}

func TestSeccompFiles(t *testing.T) {
	n := newNode(t)
	sb := n.run("seccomp")
	for name, c := range map[string]struct{ content, word string }{
		"not JSON":            {"{", "JSON"},
		"empty":               {"", "JSON"},
		"no default action":   {"{}", "defaultAction"},
		"unknown action":      {`{"defaultAction": "SCMP_ACT_MAYBE"}`, "SCMP_ACT_MAYBE"},
		"unknown comparison":  {`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_ABOUT"}]}]}`, "SCMP_CMP_ABOUT"},
		"Docker's conditions": {`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "includes": {"weather": ["fine"]}}]}`, "weather"},
	} {
		profile := filepath.Join(n.dir, "profile.json")
		n.check(os.WriteFile(profile, []byte(c.content), 0o600))
		cfg := shell("c", "true")
		cfg.Linux.SecurityContext.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: profile}
		_, err := n.tryCreate(sb, cfg)
		if t.Run(name, func(t *testing.T) { wantCode(t, err, codes.InvalidArgument, "seccomp", profile, c.word) }); err == nil {
			t.Fatal("it was made")
		}
		cfg.Linux.SecurityContext.Seccomp, cfg.Linux.SecurityContext.SeccompProfilePath = nil, "localhost/"+profile
		_, err = n.tryCreate(sb, cfg)
		wantCode(t, err, codes.InvalidArgument, "seccomp", c.word)
	}
}

// TestDevicePermissions: the device cgroup, not the mode of the node, says what may be done.
func TestDevicePermissions(t *testing.T) {
	n := newNode(t)
	sb := n.run("devices")
	dir := filepath.Join(n.dir, "dev")
	n.check(os.Mkdir(dir, 0o755))
	n.check(unix.Mknod(filepath.Join(dir, "ram"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 11)))) // that of /dev/kmsg
	try := `for d in $(find /mine -type c); do (: < $d) 2>/dev/null && echo r; (: >> $d) 2>/dev/null && echo w; done; rm -f /tmp/k; mknod /tmp/k c 1 11 2>/dev/null && echo m`
	for permissions, want := range map[string]string{"r": "r", "w": "w", "rw": "r w", "rwm": "r w m", "": "r w m"} {
		cfg := shell("c", try)
		cfg.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: []string{"SYSLOG"}} // to read it
		// A folder stands for the devices in it.
		cfg.Devices = []*cri.Device{{HostPath: dir, ContainerPath: "/mine", Permissions: permissions}}
		if got := strings.Join(strings.Fields(n.output(sb, cfg)), " "); got != want && got != want+" m" { // any node may be made: that opens nothing
			t.Errorf("%q: %q, want %q", permissions, got, want)
		}
	}
}

// TestConfinementIsTold: what this host cannot give is told with the container's status.
func TestConfinementIsTold(t *testing.T) {
	n := newNode(t)
	sb := n.run("effective")
	cfg := shell("c", sleeper)
	cfg.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: []string{"ALL"}}
	cfg.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: -997}
	id := n.launch(sb, cfg)
	resp, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	n.check(err)
	var info struct {
		Confinement struct {
			OOMScoreAdj         int      `json:"oomScoreAdj"`
			Capabilities        []string `json:"capabilities"`
			MissingCapabilities []string `json:"missingCapabilities"`
			AppArmor            string   `json:"apparmor"`
			Seccomp             string   `json:"seccomp"`
		} `json:"confinement"`
	}
	n.check(json.Unmarshal([]byte(resp.GetInfo()["info"]), &info))
	got := info.Confinement
	if score := n.exec(id, "cat", "/proc/1/oom_score_adj"); jsonOf(t, got.OOMScoreAdj) != score {
		t.Errorf("told is the score %d, it is %s", got.OOMScoreAdj, score)
	}
	if lacks := !strings.Contains(strings.Join(got.Capabilities, " "), "CAP_SYS_RESOURCE"); lacks != strings.Contains(strings.Join(got.MissingCapabilities, " "), "CAP_SYS_RESOURCE") {
		t.Errorf("%+v", got)
	}
	if len(got.Capabilities)+len(got.MissingCapabilities) < 41 || got.Seccomp != "Unconfined" || got.AppArmor == "" {
		t.Errorf("%+v", got)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
