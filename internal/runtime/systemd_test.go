package runtime_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/runtime"
)

// needSystemd: these tests are for a machine whose first process is systemd, on cgroup v2, such as test/vm makes, which says so in the
// environment.
func needSystemd(t *testing.T) {
	t.Helper()
	if _, err := systemd.Check(t.Context()); err != nil {
		if os.Getenv("MONOPOD_SYSTEMD") != "" {
			t.Fatal(err)
		}
		t.Skip("test/vm runs it: ", err)
	}
}

// withDriver is a node with that cgroup driver.
func withDriver(t *testing.T, driver string) *node {
	t.Helper()
	n := prepareNode(t)
	n.change = func(c *runtime.Config) { c.CgroupDriver = driver }
	return startNode(n)
}

// systemctl runs the program of that name.
func (n *node) systemctl(args ...string) string {
	n.Helper()
	out, err := exec.CommandContext(n.ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		n.Fatalf("systemctl %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// wantUnit compares properties of a unit.
func (n *node) wantUnit(unit string, want map[string]string) {
	n.Helper()
	got := map[string]string{}
	for line := range strings.Lines(n.systemctl("show", unit)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, ok := want[name]; ok {
			got[name] = value
		}
	}
	if !maps.Equal(got, want) {
		n.Errorf("%s has %q, want %q", unit, got, want)
	}
}

// wantFiles compares files of a cgroup.
func (n *node) wantFiles(path string, want map[string]string) {
	n.Helper()
	for file, value := range want {
		if got := n.limit(path, "", "", file); got != value {
			n.Errorf("%s of %s is %q, want %q", file, path, got, value)
		}
	}
}

func (n *node) runIn(name, parent string, change func(*cri.PodSandboxConfig)) (string, error) {
	cfg := n.sandboxConfig(name)
	cfg.Linux.CgroupParent = parent
	if change != nil {
		change(cfg)
	}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	return resp.GetPodSandboxId(), err
}

// slice makes a slice as kubelets do.
func (n *node) slice(name string) string {
	n.Helper()
	host, err := cgroup.Detect()
	n.check(err)
	top := strings.TrimPrefix(n.cgroupRoot, "/") + "_kube"
	slices := systemd.Slices{Host: host}
	n.check(slices.Create(top + "-" + name + ".slice"))
	n.Cleanup(func() {
		n.check(slices.Remove(top + "-" + name + ".slice")) // nothing is left in it
		n.check(slices.Remove(top + ".slice"))
	})
	return top + "-" + name + ".slice"
}

// wantNoScopes: nothing of a container is left with systemd, or where its cgroup was.
func (n *node) wantNoScopes() {
	n.Helper()
	n.eventually("systemd to forget the scopes", func() bool {
		return n.systemctl("list-units", "--all", "--plain", "--no-legend", "monopod-*.scope") == ""
	})
}

// limited has something of everything that systemd has a property for.
func limited() *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 20000, MemoryLimitInBytes: 64 << 20, CpusetCpus: "0",
		Unified: map[string]string{"pids.max": "50", "memory.low": "4194304"}}
}

// device tells whether a device can be opened for which there is no rule.
const device = `rm -f /tmp/mem; cat /dev/null && mknod /tmp/mem c 1 1 && (: </tmp/mem) 2>&1 | grep -o 'not permitted'`

// TestSystemdDriver: pods are slices and containers scopes, which systemd knows, limits, and does not lose; and beside that the driver
// cgroupfs is as it is elsewhere. It is one node, because an image takes long to unpack in an emulated machine.
func TestSystemdDriver(t *testing.T) {
	needSystemd(t)
	died := filepath.Join(t.TempDir(), "died")
	t.Setenv(failpoint.EnvVar, "executor/worker/scope=kill-once:"+died)
	n := withDriver(t, systemd.Driver)
	cfg, err := n.rt.RuntimeConfig(n.ctx, &cri.RuntimeConfigRequest{})
	if n.check(err); cfg.GetLinux().GetCgroupDriver() != cri.CgroupDriver_SYSTEMD {
		t.Error(cfg)
	}
	for _, step := range []struct {
		name string
		do   func(*node)
	}{
		{"the worker dies while it makes a scope", func(n *node) { n.systemdWorkerDies(died) }},
		{"a container", (*node).systemdContainer},
		{"slices of pods", (*node).systemdSlices},
		{"the driver cgroupfs", (*node).cgroupfsBesideSystemd},
	} {
		t.Log(step.name)
		step.do(n)
	}
}

// systemdContainer: a container in a slice that its client has made, from its start to its end.
func (n *node) systemdContainer() {
	slice := n.slice("pod1")
	sb, err := n.runIn("p", slice, nil)
	n.check(err)
	c := shell("c", sleeper)
	c.Linux.Resources = limited()
	id := n.launch(sb, c)
	scope := systemd.NewScope(slice, id)
	unit := map[string]string{"ActiveState": "active", "Slice": slice, "Delegate": "yes", "MemoryMax": "67108864", "MemoryLow": "4194304", "CPUWeight": "59",
		"CPUQuotaPerSecUSec": "200ms", "TasksMax": "50", "AllowedCPUs": "0"}
	files := map[string]string{"memory.max": "67108864", "memory.low": "4194304", "cpu.max": "20000 100000", "pids.max": "50", "cpuset.cpus": "0"}
	holds := func(when string) {
		n.Helper()
		n.Log(when)
		n.wantUnit(scope.Unit(), unit)
		n.wantFiles(scope.Path(), files)
		n.wantFiles(scope.Leaf(), files)
		if got := n.exec(id, "cat", "/sys/fs/cgroup/memory.max", "/proc/self/cgroup"); got != files["memory.max"]+"\n0::/" {
			n.Errorf("%s: the container sees %q", when, got)
		}
		if got := n.exec(id, "sh", "-c", device); got != "not permitted" {
			n.Errorf("%s: device rules: %q", when, got)
		}
		if n.Failed() {
			n.Fatal(when)
		}
	}
	holds("after the start")
	n.systemctl("daemon-reload")
	holds("after a reload")
	n.check(n.tryUpdate(id, &cri.LinuxContainerResources{MemoryLimitInBytes: 96 << 20, CpuShares: 1024, CpuQuota: 50000, Unified: map[string]string{"pids.max": "60"}}))
	maps.Copy(unit, map[string]string{"MemoryMax": "100663296", "CPUWeight": "100", "CPUQuotaPerSecUSec": "500ms", "TasksMax": "60"})
	maps.Copy(files, map[string]string{"memory.max": "100663296", "cpu.max": "50000 100000", "pids.max": "60"})
	holds("after an update")
	n.systemctl("daemon-reload")
	holds("after an update and a reload")
	if err := n.tryUpdate(id, &cri.LinuxContainerResources{CpuShares: 2048, CpusetCpus: "0-1", MemoryLimitInBytes: 4096}); err == nil {
		n.Error("a limit below what is in use is taken")
	}
	if err := n.tryUpdate(id, &cri.LinuxContainerResources{CpuShares: 2048, Unified: map[string]string{"pids.max": "nonsense"}}); err == nil {
		n.Error("nonsense is taken")
	}
	n.systemctl("daemon-reload")
	holds("after refused updates")
	if s := n.containerStats(id); s.GetMemory().GetUsageBytes().GetValue() == 0 || s.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 {
		n.Error(s)
	}
	if s := n.sandboxStats(sb).GetLinux(); s.GetMemory().GetUsageBytes().GetValue() == 0 || s.GetProcess().GetProcessCount().GetValue() < 2 {
		n.Error(s)
	}
	n.killWorker()
	n.restart()
	holds("with another worker and another monopod")
	n.wantOOMKilled(sb, slice)
	n.check(n.tryStop(id, 30))
	if st := n.status(id); st.GetExitCode() != 0 || st.GetState() != cri.ContainerState_CONTAINER_EXITED {
		n.Error(st)
	}
	n.wantNoScopes()
	n.wantGone(scope.Path()) // before the removal: kubelets remove the pod's slice then
	n.remove(id)
	n.removeSandbox(sb)
	n.wantUnit(slice, map[string]string{"ActiveState": "active"}) // it is its client's
}

func (n *node) wantGone(path string) {
	n.Helper()
	host, err := cgroup.Detect()
	n.check(err)
	n.eventually("the cgroup "+path+" to go", func() bool {
		there, err := host.Exists(path)
		return err == nil && !there
	})
}

// wantOOMKilled: that is known though systemd forgets the scope, and its cgroup, when the only process has ended.
func (n *node) wantOOMKilled(sandbox, slice string) {
	n.Helper()
	for i := range 3 {
		c := shell(fmt.Sprint("oom", i), "exec dd if=/dev/zero of=/dev/null bs=256M count=1")
		c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
		id := n.launch(sandbox, c)
		if st := n.wait(id); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
			n.Error(st)
		}
		n.wantGone(systemd.NewScope(slice, id).Path())
		n.remove(id)
	}
	// One that is killed by a client is not.
	id := n.launch(sandbox, shell("killed", "exec sleep 3600"))
	n.check(n.tryStop(id, 0))
	if st := n.status(id); st.GetReason() == "OOMKilled" || st.GetExitCode() != 137 {
		n.Error(st)
	}
	n.remove(id)
	if out := n.systemctl("list-units", "--all", "--plain", "--no-legend", "--state=failed"); out != "" {
		n.Error(out)
	}
}

// systemdSlices: a pod whose client has made no slice for it gets one, which goes with it.
func (n *node) systemdSlices() {
	for _, parent := range []string{"/kubepods/pod1", "pods/pod1", "/a.slice/c-d.slice", "a.scope"} {
		_, err := n.runIn("bad", parent, nil)
		wantCode(n, err, codes.InvalidArgument, "cgroup_parent", parent)
	}
	sb, err := n.runIn("own", "", func(c *cri.PodSandboxConfig) {
		c.Linux.Overhead = &cri.LinuxContainerResources{MemoryLimitInBytes: 8 << 20, CpuQuota: 10000, CpuPeriod: 100000}
		c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuShares: 1024, CpuQuota: 20000, CpuPeriod: 100000}
		c.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	})
	n.check(err)
	top := strings.TrimPrefix(n.cgroupRoot, "/")
	slice := top + "-pods-" + sb + ".slice"
	n.wantUnit(slice, map[string]string{"ActiveState": "active", "MemoryMax": "75497472", "CPUQuotaPerSecUSec": "300ms"})
	update := &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: sb, Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}}
	_, err = n.rt.UpdatePodSandboxResources(n.ctx, update)
	n.check(err)
	n.systemctl("daemon-reload")
	n.wantUnit(slice, map[string]string{"MemoryMax": "142606336", "CPUQuotaPerSecUSec": "300ms"})
	path := "/" + top + ".slice/" + top + "-pods.slice/" + slice
	n.wantFiles(path, map[string]string{"memory.max": "142606336", "cpu.max": "30000 100000"})

	c := shell("c", sleeper)
	c.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	id := n.launch(sb, c)
	for _, of := range []string{id, sb} { // the container, and the pod's init
		n.wantUnit(systemd.NewScope(slice, of).Unit(), map[string]string{"ActiveState": "active", "Slice": slice})
	}
	// Another driver is for pods that come: this one stays what it is.
	n.change = nil
	n.restart()
	next := n.launch(sb, another(c))
	n.wantUnit(systemd.NewScope(slice, next).Unit(), map[string]string{"ActiveState": "active", "Slice": slice})
	n.removeSandbox(sb)
	n.wantNoScopes()
	n.wantGone(path)
	n.wantUnit(slice, map[string]string{"ActiveState": "inactive"})
}

func another(c *cri.ContainerConfig) *cri.ContainerConfig {
	other := shell("c2", sleeper)
	other.Linux.SecurityContext.NamespaceOptions.Pid = c.Linux.SecurityContext.NamespaceOptions.Pid
	return other
}

// systemdWorkerDies: the executor's worker dies while a scope is made; the same call again ends well, and nothing is left of the first.
func (n *node) systemdWorkerDies(mark string) {
	sb := n.run("dies")
	id := n.create(sb, shell("c", sleeper)) // the executor's client asks again
	if _, err := os.Stat(mark); err != nil {
		n.Fatalf("the worker did not die: %v", err)
	}
	n.check(n.tryStart(id))
	if got := n.systemctl("list-units", "--all", "--plain", "--no-legend", "monopod-*.scope"); !strings.Contains(got, id) || strings.Contains(got, "\n") {
		n.Errorf("scopes: %q", got)
	}
	n.removeSandbox(sb)
	n.wantNoScopes()
}

// TestSystemdWithLibcontainer: containers that the executor leaves to libcontainer are in scopes too.
func TestSystemdWithLibcontainer(t *testing.T) {
	needSystemd(t)
	t.Setenv("MONOPOD_ONLY_LIBCONTAINER", "1")
	withDriver(t, systemd.Driver).otherStart("native")
}

// TestSystemdWithRunc: and so are those of OCI runtimes.
func TestSystemdWithRunc(t *testing.T) {
	needSystemd(t)
	path, err := runc()
	if err != nil {
		t.Fatal(err)
	}
	n := prepareNode(t)
	n.change = func(c *runtime.Config) {
		c.CgroupDriver = systemd.Driver
		c.Handlers = []runtime.Handler{{Name: "runc", Path: path, Root: filepath.Join(n.dir, "run", "oci")}}
	}
	startNode(n).otherStart("runc")
}

// otherStart runs a container, and all that is to be told about one whose scope is made as every other one is.
func (n *node) otherStart(handler string) {
	slice := n.slice("pod2")
	cfg := n.sandboxConfig("p")
	cfg.Linux.CgroupParent = slice
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler})
	n.check(err)
	sb := resp.GetPodSandboxId()
	c := shell("c", sleeper)
	c.Linux.Resources = limited()
	id := n.launch(sb, c)
	scope := systemd.NewScope(slice, id)
	n.wantUnit(scope.Unit(), map[string]string{"ActiveState": "active", "MemoryMax": "67108864", "TasksMax": "50"})
	n.check(n.tryUpdate(id, &cri.LinuxContainerResources{MemoryLimitInBytes: 96 << 20}))
	n.systemctl("daemon-reload")
	n.wantUnit(scope.Unit(), map[string]string{"MemoryMax": "100663296", "TasksMax": "50"})
	n.wantFiles(scope.Leaf(), map[string]string{"memory.max": "100663296", "pids.max": "50"})
	if got := n.exec(id, "cat", "/sys/fs/cgroup/memory.max"); got != "100663296" {
		n.Error(got)
	}
	n.wantOOMKilled(sb, slice)
	n.removeSandbox(sb)
	n.wantNoScopes()
}

// cgroupfsBesideSystemd: the driver cgroupfs is right where systemd runs, too: its cgroups are under one that systemd does not know, and
// leaves alone.
func (n *node) cgroupfsBesideSystemd() {
	n.change = nil
	n.restart()
	cfg, err := n.rt.RuntimeConfig(n.ctx, &cri.RuntimeConfigRequest{})
	if n.check(err); cfg.GetLinux().GetCgroupDriver() != cri.CgroupDriver_CGROUPFS {
		n.Error(cfg)
	}
	sb := n.run("cgroupfs")
	c := shell("c", sleeper)
	c.Linux.Resources = limited()
	id := n.launch(sb, c)
	for range 2 {
		n.wantFiles(n.containerCgroup(sb, id), map[string]string{"memory.max": "67108864", "cpu.max": "20000 100000", "pids.max": "50", "cpuset.cpus": "0"})
		if got := n.exec(id, "sh", "-c", device); got != "not permitted" {
			n.Errorf("device rules: %q", got)
		}
		n.systemctl("daemon-reload")
	}
	n.removeSandbox(sb)
	n.change = func(c *runtime.Config) { c.CgroupDriver = systemd.Driver } // for what removes it all
	n.restart()
}
