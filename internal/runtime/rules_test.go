package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/selinux"
)

// The rules of CRI's comments that no other test is about (docs/reference/CRI-RULES.md).

// unknownLabel is the code for a label that no policy knows: options have no effect on a host without SELinux.
func unknownLabel() codes.Code {
	if selinux.Enabled() {
		return codes.InvalidArgument
	}
	return codes.OK
}

// TestSandboxRules: a sandbox that breaks a rule is not made, and the field is named.
func TestSandboxRules(t *testing.T) {
	n := sharedNode(t)
	for name, c := range map[string]struct {
		change func(*cri.PodSandboxConfig)
		code   codes.Code
		words  []string
	}{
		"group without user": {func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{} }, codes.InvalidArgument, []string{"run_as_group"}},
		"user and group": {func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.RunAsUser, c.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 1}, &cri.Int64Value{Value: 1}
		}, codes.OK, nil},
		"host_port 0": {func(c *cri.PodSandboxConfig) {
			c.PortMappings = []*cri.PortMapping{{Protocol: cri.Protocol_UDP, ContainerPort: 53, HostPort: 0, HostIp: "127.0.0.1"}}
		}, codes.OK, nil},
		"windows": {func(c *cri.PodSandboxConfig) { c.Windows = &cri.WindowsPodSandboxConfig{} }, codes.InvalidArgument, []string{"windows"}},
		"SELinux": {func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0"}
		}, unknownLabel(), []string{"selinux_options", "u:r:t:s0"}},
		"SELinux, no part of a label": {func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{Type: "t t"}
		}, codes.InvalidArgument, []string{"selinux_options.type", "t t"}},
		"older seccomp": {func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.SeccompProfilePath = "nonsense" }, codes.InvalidArgument, []string{"seccomp_profile_path", "nonsense"}},
		"relative localhost_ref": {func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "p.json"}
		}, codes.InvalidArgument, []string{"localhost_ref", "p.json"}},
		"annotations beyond the bound": {func(c *cri.PodSandboxConfig) {
			c.Annotations = map[string]string{"k": strings.Repeat("v", 256<<10)}
		}, codes.InvalidArgument, []string{"annotations", "262145", "262144"}},
		"root file system and groups": {func(c *cri.PodSandboxConfig) { // there is no process that they would be for
			sc := c.Linux.SecurityContext
			sc.ReadonlyRootfs, sc.SupplementalGroups, sc.SupplementalGroupsPolicy = true, []int64{7}, cri.SupplementalGroupsPolicy_Strict
		}, codes.OK, nil},
	} {
		cfg := n.sandboxConfig("rules")
		c.change(cfg)
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
		if c.code != codes.OK {
			wantCode(t, err, c.code, c.words...)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n.removeSandbox(resp.GetPodSandboxId())
	}
}

// TestHostname: a pod has the name that it is given, or the node's, and says the same everywhere; one in the node's network is given none.
func TestHostname(t *testing.T) {
	n := newNode(t)
	own, err := os.Hostname()
	n.check(err)
	for name, c := range map[string]struct {
		network        cri.NamespaceMode
		hostname, want string
	}{
		"a pod's own":                  {cri.NamespaceMode_POD, "Web-1.example", "Web-1.example"},
		"none":                         {cri.NamespaceMode_POD, "", own},
		"none in the node's network":   {cri.NamespaceMode_NODE, "", own},
		"one in the node's network":    {cri.NamespaceMode_NODE, "web", ""},
		"the node's in its network":    {cri.NamespaceMode_NODE, own, ""},
		"another line for the files":   {cri.NamespaceMode_POD, "web\n192.0.2.1 registry.example", ""},
		"a path":                       {cri.NamespaceMode_POD, "../../etc/passwd", ""},
		"longer than the kernel holds": {cri.NamespaceMode_POD, strings.Repeat("a.", 32) + "a", ""},
	} {
		cfg := n.sandboxConfig("hostname")
		cfg.Hostname, cfg.Linux.SecurityContext.NamespaceOptions.Network = c.hostname, c.network
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
		if c.want == "" {
			wantCode(t, err, codes.InvalidArgument, "hostname")
			continue
		}
		n.check(err)
		sb := resp.GetPodSandboxId()
		said := shell("c", "hostname; echo $HOSTNAME; cat /etc/hostname")
		said.Linux.SecurityContext.NamespaceOptions.Network = c.network
		if got := n.output(sb, said); got != c.want+"\n"+c.want+"\n"+c.want {
			t.Errorf("%s: %q, want %q three times", name, got, c.want)
		}
		if ip := n.sandboxStatus(sb).GetNetwork().GetIp(); ip != "" {
			if got := n.output(sb, shell("d", "grep -w "+ip+" /etc/hosts")); strings.Join(strings.Fields(got), " ") != ip+" "+c.want {
				t.Errorf("%s: in hosts %q", name, got)
			}
		}
		n.removeSandbox(sb)
	}
}

// TestContainerRules: a container that breaks a rule is not made, and the field is named; what the rule allows is made.
func TestContainerRules(t *testing.T) {
	n := sharedNode(t)
	sb := n.run("rules")
	security := func(f func(*cri.LinuxContainerSecurityContext)) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) { f(c.Linux.SecurityContext) }
	}
	mounts := func(m *cri.Mount) func(*cri.ContainerConfig) {
		m.ContainerPath = "/m"
		return func(c *cri.ContainerConfig) { c.Mounts = []*cri.Mount{m} }
	}
	for name, c := range map[string]struct {
		change func(*cri.ContainerConfig)
		code   codes.Code
		words  []string
	}{
		"group without user": {security(func(sc *cri.LinuxContainerSecurityContext) { sc.RunAsGroup = &cri.Int64Value{Value: 5} }), codes.InvalidArgument, []string{"run_as_group"}},
		"annotations beyond the bound": {func(c *cri.ContainerConfig) {
			c.Annotations = map[string]string{"k": strings.Repeat("v", 256<<10)}
		}, codes.InvalidArgument, []string{"annotations", "262145", "262144"}},
		"group and username": {security(func(sc *cri.LinuxContainerSecurityContext) {
			sc.RunAsGroup, sc.RunAsUsername = &cri.Int64Value{Value: 5}, "app"
		}), codes.OK, nil},
		"user and username": {security(func(sc *cri.LinuxContainerSecurityContext) {
			sc.RunAsUser, sc.RunAsUsername = &cri.Int64Value{Value: 5}, "app"
		}), codes.InvalidArgument, []string{"run_as_username"}},
		"unknown username": {security(func(sc *cri.LinuxContainerSecurityContext) { sc.RunAsUsername = "nobody-here" }), codes.InvalidArgument, []string{"nobody-here"}},
		"unknown policy":   {security(func(sc *cri.LinuxContainerSecurityContext) { sc.SupplementalGroupsPolicy = 7 }), codes.InvalidArgument, []string{"supplemental_groups_policy"}},
		"privileged":       {security(func(sc *cri.LinuxContainerSecurityContext) { sc.Privileged = true }), codes.InvalidArgument, []string{"privileged", "sandbox"}},
		"target without id": {security(func(sc *cri.LinuxContainerSecurityContext) {
			sc.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET}
		}), codes.InvalidArgument, []string{"target_id"}},
		"id without target": {security(func(sc *cri.LinuxContainerSecurityContext) { sc.NamespaceOptions.TargetId = "x" }), codes.OK, nil},
		"relative localhost_ref": {security(func(sc *cri.LinuxContainerSecurityContext) {
			sc.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "profile.json"}
		}), codes.InvalidArgument, []string{"localhost_ref", "profile.json", "absolute"}},
		"localhost_ref without Localhost": {security(func(sc *cri.LinuxContainerSecurityContext) {
			sc.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined, LocalhostRef: "/p"}
		}), codes.InvalidArgument, []string{"localhost_ref", "/p", "Localhost"}},
		"Localhost without localhost_ref": {security(func(sc *cri.LinuxContainerSecurityContext) {
			sc.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost}
		}), codes.InvalidArgument, []string{"apparmor.localhost_ref"}},
		"unknown profile_type": {security(func(sc *cri.LinuxContainerSecurityContext) { sc.Seccomp = &cri.SecurityProfile{ProfileType: 9} }), codes.InvalidArgument, []string{"profile_type", "9"}},
		"older seccomp, relative": {security(func(sc *cri.LinuxContainerSecurityContext) { sc.SeccompProfilePath = "localhost/p.json" }), codes.InvalidArgument,
			[]string{"seccomp_profile_path", "p.json", "absolute"}},
		"older seccomp, nonsense":  {security(func(sc *cri.LinuxContainerSecurityContext) { sc.SeccompProfilePath = "p" }), codes.InvalidArgument, []string{"seccomp_profile_path"}},
		"older AppArmor, nonsense": {security(func(sc *cri.LinuxContainerSecurityContext) { sc.ApparmorProfile = "p" }), codes.InvalidArgument, []string{"apparmor_profile"}},
		"older AppArmor, default":  {security(func(sc *cri.LinuxContainerSecurityContext) { sc.ApparmorProfile = "runtime/default" }), codes.OK, nil},
		"older AppArmor, none":     {security(func(sc *cri.LinuxContainerSecurityContext) { sc.ApparmorProfile = "unconfined" }), codes.OK, nil},
		"SELinux": {security(func(sc *cri.LinuxContainerSecurityContext) {
			sc.SelinuxOptions = &cri.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0"}
		}), unknownLabel(), []string{"selinux_options", "u:r:t:s0"}},

		"image and host_path":                      {mounts(&cri.Mount{HostPath: "/tmp", Image: &cri.ImageSpec{Image: busybox}}), codes.InvalidArgument, []string{"host_path", "image"}},
		"sub path without image":                   {mounts(&cri.Mount{HostPath: "/tmp", ImageSubPath: "bin"}), codes.InvalidArgument, []string{"image_sub_path"}},
		"neither image nor host_path":              {mounts(&cri.Mount{}), codes.InvalidArgument, []string{"host_path"}},
		"recursive read-only without readonly":     {mounts(&cri.Mount{HostPath: "/tmp", RecursiveReadOnly: true}), codes.InvalidArgument, []string{"recursive_read_only", "readonly"}},
		"recursive read-only that is not private":  {mounts(&cri.Mount{HostPath: "/tmp", RecursiveReadOnly: true, Readonly: true, Propagation: 1}), codes.InvalidArgument, []string{"recursive_read_only", "propagation"}},
		"mount option that another field is about": {mounts(&cri.Mount{HostPath: "/tmp", MountOptions: []string{"rshared"}}), codes.InvalidArgument, []string{"mount_options", "rshared"}},
		"windows": {func(c *cri.ContainerConfig) { c.Windows = &cri.WindowsContainerConfig{} }, codes.InvalidArgument, []string{"windows"}},
	} {
		cfg := shell("rules", sleeper)
		c.change(cfg)
		id, err := n.tryCreate(sb, cfg)
		if c.code != codes.OK {
			wantCode(t, err, c.code, c.words...)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n.remove(id)
	}

	t.Run("older seccomp", func(t *testing.T) {
		profile := filepath.Join(n.dir, "p.json")
		n.check(os.WriteFile(profile, []byte(`{"defaultAction": "SCMP_ACT_ALLOW"}`), 0o600))
		for older, want := range map[string]string{"": "0", "unconfined": "0", "runtime/default": "2", "localhost/" + profile: "2"} {
			cfg := shell("c", "cat /proc/1/status")
			cfg.Linux.SecurityContext.SeccompProfilePath = older
			if got := procStatus(n.output(sb, cfg), "Seccomp"); got != want {
				t.Errorf("%q: %s, want %s", older, got, want)
			}
			// The newer field is the one that counts.
			cfg.Linux.SecurityContext.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
			if got := procStatus(n.output(sb, cfg), "Seccomp"); got != "0" {
				t.Errorf("%q beside Unconfined: %s", older, got)
			}
		}
	})
	t.Run("mount options", func(t *testing.T) {
		cfg := shell("c", "grep ' /m ' /proc/self/mountinfo")
		cfg.Mounts = []*cri.Mount{{HostPath: n.dir, ContainerPath: "/m", MountOptions: []string{"noexec", "nodev", "nosuid"}}}
		out := n.output(sb, cfg)
		for _, o := range cfg.Mounts[0].MountOptions {
			if !strings.Contains(out, ","+o) {
				t.Errorf("%s is missing: %s", o, out)
			}
		}
	})
}

// TestStreamRules: which streams can be asked for.
func TestStreamRules(t *testing.T) {
	n := sharedNode(t)
	sb := n.run("streams")
	plain := n.launch(sb, shell("plain", sleeper))
	tty := shell("tty", sleeper)
	tty.Tty = true
	terminal := n.launch(sb, tty)
	for _, c := range []struct {
		what                       string
		tty, stdin, stdout, stderr bool
		code                       codes.Code
		words                      string
	}{
		{"no stream", false, false, false, false, codes.InvalidArgument, "stdin, stdout and stderr"},
		{"no stream of a terminal", true, false, false, false, codes.InvalidArgument, "stdin, stdout and stderr"},
		{"stderr of a terminal", true, true, true, true, codes.InvalidArgument, "stderr"},
		{"stderr alone of a terminal", true, false, false, true, codes.InvalidArgument, "stderr"},
		{"stdin alone", false, true, false, false, codes.OK, ""},
		{"stdout alone", false, false, true, false, codes.OK, ""},
		{"stderr alone", false, false, false, true, codes.OK, ""},
		{"a terminal", true, true, true, false, codes.OK, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := n.rt.Exec(n.ctx, &cri.ExecRequest{ContainerId: plain, Cmd: []string{"true"}, Tty: c.tty, Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr})
			wantCode(t, err, c.code, c.words)
			same, other := plain, terminal
			if c.tty {
				same, other = terminal, plain
			}
			_, err = n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: same, Tty: c.tty, Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr})
			wantCode(t, err, c.code, c.words)
			if c.code == codes.OK { // who has no terminal may attach to a container that has one, and not the other way round
				_, err = n.rt.Attach(n.ctx, &cri.AttachRequest{ContainerId: other, Tty: c.tty, Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr})
				if c.tty {
					wantCode(t, err, codes.InvalidArgument, "tty", other)
				} else {
					n.check(err)
				}
			}
		})
	}
}

// TestReopenRules: a Reopen that has failed leaves no new log file, then or later.
func TestReopenRules(t *testing.T) {
	n := sharedNode(t)
	sb := n.run("reopen")
	reopen := func(id string) error {
		_, err := n.rt.ReopenContainerLog(n.ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
		return err
	}
	absent := func(what, path string) {
		t.Helper()
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s: there is a log file at %s (%v)", what, path, err)
		}
	}
	created := n.create(sb, shell("created", sleeper))
	n.check(os.Rename(n.status(created).GetLogPath(), n.status(created).GetLogPath()+".1"))
	wantCode(t, reopen(created), codes.FailedPrecondition, created)
	absent("not started", n.status(created).GetLogPath())
	wantCode(t, reopen(strings.Repeat("0", 64)), codes.NotFound)

	id := n.launch(sb, shell("c", "echo first; while :; do [ -e /tmp/go ] && echo more; sleep 0.02; done"))
	path := n.status(id).GetLogPath()
	n.eventually("a line", func() bool { return len(n.logLines(path)) >= 1 })
	dir := filepath.Dir(path)
	n.check(os.Rename(dir, dir+".away"))
	if err := reopen(id); err == nil {
		t.Error("reopened in a directory that is not there")
	}
	n.check(os.Mkdir(dir, 0o755))
	n.exec(id, "touch", "/tmp/go")
	old := filepath.Join(dir+".away", filepath.Base(path))
	n.eventually("what is printed later to be in the old file", func() bool { return len(n.logLines(old)) >= 3 })
	absent("after an error", path)
	n.check(reopen(id))
	n.eventually("the new file", func() bool { return len(n.logLines(path)) >= 1 })

	n.check(n.tryStop(id, 0))
	n.check(os.Rename(path, path+".1"))
	wantCode(t, reopen(id), codes.FailedPrecondition, id)
	absent("ended", path)
}

// TestOOMKilled: a container that the kernel has killed for its memory says so.
func TestOOMKilled(t *testing.T) {
	n := newNode(t)
	cfg := shell("c", "dd if=/dev/zero of=/dev/null bs=256M count=1; exit $?")
	cfg.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
	alone := shell("alone", "exec dd if=/dev/zero of=/dev/null bs=256M count=1")
	alone.Linux.Resources = cfg.Linux.Resources
	sb := n.run("oom")
	// The first process survives its child, and tells of it.
	if st := n.wait(n.launch(sb, cfg)); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
		t.Error(st)
	}
	if st := n.wait(n.launch(sb, alone)); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
		t.Error(st)
	}
}
