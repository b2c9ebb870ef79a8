package runtime_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
)

// needSELinux is the environment variable that says that this host has SELinux, so that what is to be tested here is: the virtual
// machine of test/vm has it, with the policy that is there.
const needSELinux = "MONOPOD_TEST_SELINUX"

// fileLabel is the SELinux label of a file, by its path on the host.
func (n *node) fileLabel(path string) string {
	n.Helper()
	raw := make([]byte, 256)
	got, err := unix.Lgetxattr(path, "security.selinux", raw)
	if err != nil {
		n.Fatalf("label of %s: %v", path, err)
	}
	return strings.TrimRight(string(raw[:got]), "\x00")
}

// inside is the path on the host of a file that a running container sees.
func (n *node) inside(id, path string) string {
	n.Helper()
	state, err := n.executor.State(n.ctx, ids.ContainerID(id))
	n.check(err)
	return "/proc/" + strconv.Itoa(state.PID) + "/root" + path
}

// processLabel is that of a container's first process.
func (n *node) processLabel(id string) string {
	n.Helper()
	state, err := n.executor.State(n.ctx, ids.ContainerID(id))
	n.check(err)
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(state.PID), "attr/current"))
	n.check(err)
	return strings.TrimRight(string(raw), "\x00\n")
}

const (
	processOf = "system_u:system_r:container_t:"
	filesOf   = "system_u:object_r:container_file_t:"
	freeLabel = "system_u:system_r:spc_t:s0"
)

var levelForm = regexp.MustCompile(`^s0:c\d+,c\d+$`)

// TestSELinux: where the kernel has it and its policy knows containers, they are labelled; where it has not, options have no effect. What labels are and do is
// tried with the policy that needSELinux promises; a host's own denies what it likes.
func TestSELinux(t *testing.T) {
	if !selinux.Enabled() {
		if os.Getenv(needSELinux) != "" {
			t.Fatal("this host has no SELinux, and is to have it")
		}
		n := newNode(t)
		// As pods of Kubernetes' conformance tests have it.
		cfg := n.sandboxConfig("selinux")
		cfg.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{Type: "container_t", Level: "s0"}
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
		n.check(err)
		labelled := shell("labelled", "echo runs")
		labelled.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{Level: "s0"}
		labelled.Mounts = []*cri.Mount{{HostPath: t.TempDir(), ContainerPath: "/volume", SelinuxRelabel: true}}
		if got := n.output(resp.GetPodSandboxId(), labelled); got != "runs" {
			t.Errorf("a container with a level printed %q", got)
		}
		return
	}
	if os.Getenv(needSELinux) == "" {
		n := newNode(t)
		own, err := selinux.Own()
		n.check(err)
		process, _, _ := selinux.Contexts()
		process = strings.Join(strings.SplitN(process, ":", 4)[:3], ":") // without a level
		if got := n.processLabel(n.launch(n.run("selinux"), shell("c", sleeper))); got != own && !strings.HasPrefix(got, process) {
			t.Errorf("the label is %s, neither %s nor one of %s", got, own, process)
		}
		return
	}
	for way, libcontainer := range map[string]bool{"native": false, "libcontainer": true} {
		t.Run(way, func(t *testing.T) {
			if libcontainer {
				t.Setenv("MONOPOD_ONLY_LIBCONTAINER", "1")
			}
			testLabels(t, newNode(t), "")
		})
	}
	t.Run("runc", func(t *testing.T) { testLabels(t, withRunc(t), "runc") })
	t.Run("options", testSELinuxOptions)
	t.Run("disabled", func(t *testing.T) {
		n := prepareNode(t)
		n.change = func(c *runtime.Config) { c.SELinux = hostfacts.SELinuxDisabled }
		startNode(n)
		sb := n.run("disabled")
		id := n.launch(sb, shell("c", sleeper))
		if own, err := selinux.Own(); err != nil || n.processLabel(id) != own {
			t.Errorf("the label is %s, and the runtime's %s (%v)", n.processLabel(id), own, err)
		}
		labelled := shell("labelled", sleeper)
		labelled.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{Type: "web_t"}
		if own, err := selinux.Own(); err != nil || n.processLabel(n.launch(sb, labelled)) != own {
			t.Errorf("options have an effect where labels are switched off (%v)", err)
		}
		n.change = nil
		n.restart()
		labelled.Metadata.Name = "later"
		_, err := n.tryCreate(sb, labelled)
		wantCode(t, err, codes.FailedPrecondition, "selinux_options", "make a new one")
		n.launch(sb, shell("plain", sleeper))
	})
}

// testLabels: what a pod's containers are labelled with, and what the policy then lets them do.
func testLabels(t *testing.T, n *node, handler string) {
	sb, err := n.runWith("one", handler)
	n.check(err)
	a := n.launch(sb, shell("a", "echo shared > /dev/shm/f; "+sleeper))
	label := n.processLabel(a)
	level := strings.TrimPrefix(label, processOf)
	if !levelForm.MatchString(level) {
		t.Fatalf("the label is %q", label)
	}
	for _, path := range []string{"/.", "/bin", "/dev", "/dev/null", "/dev/shm", "/dev/pts/ptmx", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		if got := n.fileLabel(n.inside(a, path)); got != filesOf+level {
			t.Errorf("%s is labelled %s", path, got)
		}
	}
	// A command has the container's label, and so has what it makes; with a terminal, too.
	if got := n.exec(a, "cat", "/proc/self/attr/current"); strings.TrimRight(got, "\x00") != label {
		t.Errorf("a command has the label %s", got)
	}
	if got := n.exec(a, "sh", "-c", "cat /etc/hosts /etc/resolv.conf > /tmp/x && echo more >> /etc/hosts && cat /proc/self/attr/exec /proc/self/attr/keycreate"); strings.Trim(got, "\x00") != "" {
		t.Errorf("what is left for further programs: %q", got)
	}
	if got := n.fileLabel(n.inside(a, "/tmp/x")); got != filesOf+level {
		t.Errorf("a new file is labelled %s", got)
	}
	// The pod's other containers share its level, and so its memory; those of other pods have other ones.
	b := n.launch(sb, shell("b", sleeper))
	if got := n.processLabel(b); got != label {
		t.Errorf("another container of the pod has the label %s", got)
	}
	if got := n.exec(b, "cat", "/dev/shm/f"); got != "shared" {
		t.Errorf("shared memory: %q", got)
	}
	other, err := n.runWith("two", handler)
	n.check(err)
	volume, foreign := t.TempDir(), t.TempDir()
	for _, dir := range []string{volume, foreign} {
		n.check(os.Chmod(dir, 0o777))
		n.check(os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o666))
	}
	cfg := shell("c", sleeper)
	cfg.Mounts = []*cri.Mount{{HostPath: volume, ContainerPath: "/volume", SelinuxRelabel: true}, {HostPath: foreign, ContainerPath: "/foreign"}}
	c := n.launch(other, cfg)
	theirs := strings.TrimPrefix(n.processLabel(c), processOf)
	if !levelForm.MatchString(theirs) || theirs == level {
		t.Errorf("another pod has the level %q", theirs)
	}
	if got := n.fileLabel(filepath.Join(volume, "f")); got != filesOf+theirs {
		t.Errorf("a volume is labelled %s", got)
	}
	if got := n.exec(c, "sh", "-c", "cat /volume/f && echo x > /volume/g && cat /foreign/f 2>&1 || echo $?"); !strings.Contains(got, "content") || !strings.Contains(got, "ermission denied") {
		t.Errorf("a volume that is relabelled, and one that is not: %q", got)
	}
	// The same volume in the first pod without a label for it: the level keeps it out, and only that.
	cfg = shell("d", "cat /volume/f 2>&1; touch /volume/h 2>&1; true")
	cfg.Mounts = []*cri.Mount{{HostPath: volume, ContainerPath: "/volume"}}
	if got := n.output(sb, cfg); strings.Count(got, "ermission denied") != 2 {
		t.Errorf("another pod's volume: %q", got)
	}
	// Images in mounts, whose files have no labels.
	n.loadData()
	cfg = shell("e", "cat /all/models/a && /all/tool")
	cfg.Mounts = []*cri.Mount{imageMount("/all", data, "")}
	if got := n.output(sb, cfg); got != "newruns" {
		t.Errorf("an image in a mount: %q", got)
	}
	// Levels outlive a restart, and go with their sandboxes.
	n.restart()
	if got := n.processLabel(n.launch(sb, shell("f", sleeper))); got != label {
		t.Errorf("after a restart a container of the pod has the label %s", got)
	}
	if got := n.exec(a, "cat", "/proc/self/attr/current"); strings.TrimRight(got, "\x00") != label {
		t.Errorf("after a restart a command has the label %s", got)
	}
}

// testSELinuxOptions: the fields of SELinuxOption, and what is not confined.
func testSELinuxOptions(t *testing.T) {
	n := newNode(t)
	run := func(name string, change func(*cri.LinuxSandboxSecurityContext)) (string, error) {
		cfg := n.sandboxConfig(name)
		change(cfg.Linux.SecurityContext)
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
		return resp.GetPodSandboxId(), err
	}
	with := func(name string, o *cri.SELinuxOption) *cri.ContainerConfig {
		cfg := shell(name, sleeper)
		cfg.Linux.SecurityContext.SelinuxOptions = o
		return cfg
	}
	options, err := run("options", func(sc *cri.LinuxSandboxSecurityContext) {
		sc.SelinuxOptions = &cri.SELinuxOption{Type: "web_t", Level: "s0:c1,c2"}
	})
	n.check(err)
	for name, c := range map[string]struct {
		o             *cri.SELinuxOption
		process, file string
	}{
		"none":  {nil, "system_u:system_r:web_t:s0:c1,c2", filesOf + "s0:c1,c2"},
		"level": {&cri.SELinuxOption{Level: "s0:c5"}, processOf + "s0:c5", filesOf + "s0:c5"},
		"role":  {&cri.SELinuxOption{User: "web_u", Role: "web_r", Type: "web_t"}, "web_u:web_r:web_t:s0:c1,c2", "web_u:object_r:container_file_t:s0:c1,c2"},
	} {
		id := n.launch(options, with(name, c.o))
		if got := n.processLabel(id); got != c.process {
			t.Errorf("%s: the label is %s", name, got)
		}
		if got := n.fileLabel(n.inside(id, "/.")); got != c.file {
			t.Errorf("%s: files are labelled %s", name, got)
		}
		if got := n.exec(id, "cat", "/proc/self/attr/current"); strings.TrimRight(got, "\x00") != c.process {
			t.Errorf("%s: a command has the label %s", name, got)
		}
	}
	_, err = n.tryCreate(options, with("nobody", &cri.SELinuxOption{Type: "no_such_t"}))
	wantCode(t, err, codes.InvalidArgument, "selinux_options", "no_such_t")
	_, err = n.tryCreate(options, with("role-of-others", &cri.SELinuxOption{Role: "web_r"}))
	wantCode(t, err, codes.InvalidArgument, "selinux_options", "web_r")
	_, err = run("nobody", func(sc *cri.LinuxSandboxSecurityContext) { sc.SelinuxOptions = &cri.SELinuxOption{User: "nobody_u"} })
	wantCode(t, err, codes.InvalidArgument, "selinux_options", "nobody_u")
	system := with("system", nil)
	system.Mounts = []*cri.Mount{{HostPath: "/usr", ContainerPath: "/host", SelinuxRelabel: true}}
	_, err = n.tryCreate(options, system)
	wantCode(t, err, codes.InvalidArgument, "selinux_relabel", "/usr")

	free, err := run("privileged", func(sc *cri.LinuxSandboxSecurityContext) { sc.Privileged = true })
	n.check(err)
	cfg := with("privileged", &cri.SELinuxOption{Type: "web_t"})
	cfg.Linux.SecurityContext.Privileged = true
	if got := n.processLabel(n.launch(free, cfg)); got != freeLabel {
		t.Errorf("privileged: the label is %s", got)
	}
	if got := n.processLabel(n.launch(free, shell("confined", sleeper))); !strings.HasPrefix(got, processOf) {
		t.Errorf("beside a privileged container: the label is %s", got)
	}
	for name, mode := range map[string]func(*cri.NamespaceOption){
		"pid": func(o *cri.NamespaceOption) { o.Pid = cri.NamespaceMode_NODE },
		"ipc": func(o *cri.NamespaceOption) { o.Ipc = cri.NamespaceMode_NODE },
	} {
		sb, err := run("node-"+name, func(sc *cri.LinuxSandboxSecurityContext) { mode(sc.NamespaceOptions) })
		n.check(err)
		cfg := with(name, nil)
		mode(cfg.Linux.SecurityContext.NamespaceOptions)
		if got := n.processLabel(n.launch(sb, cfg)); got != freeLabel {
			t.Errorf("the node's %s: the label is %s", name, got)
		}
		cfg = with(name+"-typed", &cri.SELinuxOption{Type: "web_t"})
		mode(cfg.Linux.SecurityContext.NamespaceOptions)
		if got := n.processLabel(n.launch(sb, cfg)); !strings.HasPrefix(got, "system_u:system_r:web_t:s0:c") {
			t.Errorf("the node's %s, with a type: the label is %s", name, got)
		}
	}
}
