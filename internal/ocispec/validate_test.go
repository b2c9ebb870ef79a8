package ocispec

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The classes of refusal.
var classes = map[string]func(error) bool{
	"invalid": errdefs.IsInvalidArgument, "not implemented": errdefs.IsNotImplemented, "host": errdefs.IsFailedPrecondition,
}

func expect(t *testing.T, name string, err error, class, contains string) {
	t.Helper()
	switch {
	case class == "":
		if err != nil {
			t.Errorf("%s: %v, want none", name, err)
		}
	case err == nil || !classes[class](err) || !strings.Contains(err.Error(), contains):
		t.Errorf("%s: error %v, want %s with %q", name, err, class, contains)
	}
}

func TestValidate(t *testing.T) {
	mount := func(m *cri.Mount) func(*Input) {
		return func(in *Input) { in.Container.Mounts = []*cri.Mount{m} }
	}
	resources := func(r *cri.LinuxContainerResources) func(*Input) {
		return func(in *Input) { in.Container.Linux.Resources = r }
	}
	device := func(d *cri.Device) func(*Input) {
		return func(in *Input) { in.Container.Devices = []*cri.Device{d} }
	}
	namespaces := func(o *cri.NamespaceOption) func(*Input) {
		return func(in *Input) { security(in).NamespaceOptions = o }
	}
	private, slave := cri.MountPropagation_PROPAGATION_PRIVATE, cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	localhost := cri.SecurityProfile_Localhost
	for _, c := range []struct {
		name, class, contains string
		change                func(*Input)
	}{
		{"ordinary", "", "", func(*Input) {}},
		{"no linux part", "", "", func(in *Input) { in.Container.Linux = nil }},
		{"no config", "invalid", "config: missing", func(in *Input) { in.Container = nil }},
		{"no name", "invalid", "metadata.name", func(in *Input) { in.Container.Metadata = nil }},
		{"windows", "invalid", "windows", func(in *Input) { in.Container.Windows = &cri.WindowsContainerConfig{} }},
		{"relative working_dir", "invalid", `working_dir: "tmp"`, func(in *Input) { in.Container.WorkingDir = "tmp" }},
		{"env without name", "invalid", "envs", func(in *Input) { in.Container.Envs = []*cri.KeyValue{{}} }},
		{"env name with =", "invalid", `envs: "a=b"`, func(in *Input) { in.Container.Envs = []*cri.KeyValue{{Key: "a=b"}} }},
		{"env value with NUL", "invalid", "envs[0].value: byte 1", func(in *Input) { in.Container.Envs = []*cri.KeyValue{{Key: "a", Value: []byte{'x', 0}}} }},

		{"relative container_path", "invalid", "container_path", mount(&cri.Mount{ContainerPath: "a", HostPath: "/a"})},
		{"mount on /", "invalid", "container_path", mount(&cri.Mount{ContainerPath: "/a/..", HostPath: "/a"})},
		{"relative host_path", "invalid", "mounts[/a].host_path", mount(&cri.Mount{ContainerPath: "/a", HostPath: "a"})},
		{"image and host_path", "invalid", "host_path", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", Image: &cri.ImageSpec{Image: "i"}})},
		{"image", "", "", mount(&cri.Mount{ContainerPath: "/a", Image: &cri.ImageSpec{Image: "i"}, ImageSubPath: "x"})},
		{"sub path without image", "invalid", "image_sub_path", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", ImageSubPath: "x"})},
		{"rro", "", "", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", Readonly: true, RecursiveReadOnly: true, Propagation: private})},
		{"rro on an old kernel", "host", "recursive_read_only: this kernel", func(in *Input) {
			in.Host.RecursiveReadOnly = false
			mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", Readonly: true, RecursiveReadOnly: true})(in)
		}},
		{"rro without readonly", "invalid", "recursive_read_only", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", RecursiveReadOnly: true})},
		{"rro that propagates", "invalid", "recursive_read_only", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", Readonly: true, RecursiveReadOnly: true, Propagation: slave})},
		{"unknown propagation", "invalid", "propagation: 9", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", Propagation: 9})},
		{"mount_options", "", "", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", MountOptions: []string{"noexec", "nosuid", "nodev"}})},
		{"mount option of another field", "invalid", `mount_options: "rshared"`, mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", MountOptions: []string{"rshared"}})},
		{"relabel without SELinux", "", "", mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", SelinuxRelabel: true})},
		{"relabel", "", "", func(in *Input) {
			mount(&cri.Mount{ContainerPath: "/a", HostPath: "/a", SelinuxRelabel: true})(in)
			in.Host.SELinux = selinuxHost().SELinux
		}},

		{"device", "", "", device(&cri.Device{HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "rwm"})},
		{"relative device", "invalid", "host_path", device(&cri.Device{HostPath: "a", ContainerPath: "/dev/a"})},
		{"relative device inside", "invalid", "container_path", device(&cri.Device{HostPath: "/dev/a", ContainerPath: "a"})},
		{"device permissions", "invalid", `permissions: "rx"`, device(&cri.Device{HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "rx"})},

		{"cpu_period", "invalid", "linux.resources.cpu_period", resources(&cri.LinuxContainerResources{CpuPeriod: -1})},
		{"cpu_quota", "invalid", "cpu_quota", resources(&cri.LinuxContainerResources{CpuQuota: -2})},
		{"no quota", "", "", resources(&cri.LinuxContainerResources{CpuQuota: -1, MemoryLimitInBytes: -1})},
		{"cpu_shares", "invalid", "cpu_shares", resources(&cri.LinuxContainerResources{CpuShares: -1})},
		{"memory", "invalid", "memory_limit_in_bytes", resources(&cri.LinuxContainerResources{MemoryLimitInBytes: -2})},
		{"swap without memory", "invalid", "memory_swap_limit_in_bytes", resources(&cri.LinuxContainerResources{MemorySwapLimitInBytes: 5})},
		{"swap below memory", "invalid", "memory_swap_limit_in_bytes", resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 6, MemorySwapLimitInBytes: 5})},
		{"swap not counted", "", "", func(in *Input) {
			resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 5, MemorySwapLimitInBytes: 6})(in)
			in.Host.SwapLimit = false
		}},
		{"no swap, not counted", "", "", func(in *Input) {
			resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 5, MemorySwapLimitInBytes: 5})(in)
			in.Host.SwapLimit = false
		}},
		{"oom_score_adj", "invalid", "oom_score_adj: 1001", resources(&cri.LinuxContainerResources{OomScoreAdj: 1001})},
		{"cpuset_cpus", "invalid", `cpuset_cpus: "3-1"`, resources(&cri.LinuxContainerResources{CpusetCpus: "3-1"})},
		{"cpuset_mems", "invalid", "cpuset_mems", resources(&cri.LinuxContainerResources{CpusetMems: "0,,1"})},
		{"huge pages", "host", `"1GB"`, resources(&cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "1GB", Limit: 1}}})},
		{"huge pages not counted", "", "", func(in *Input) {
			resources(&cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 1}}})(in)
			in.Host.HugepageSizes = nil
		}},
		{"no huge pages of that size", "", "", resources(&cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "1GB"}}})},
		{"unified key", "invalid", "unified", resources(&cri.LinuxContainerResources{Unified: map[string]string{"../memory.max": "1"}})},
		{"unified on v1", "host", "unified", func(in *Input) {
			resources(&cri.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"}})(in)
			in.Host.CgroupV2 = false
		}},

		{"privileged in unprivileged sandbox", "invalid", "security_context.privileged", func(in *Input) { security(in).Privileged = true }},
		{"privileged, no sandbox", "invalid", "security_context.privileged", func(in *Input) { security(in).Privileged, in.Sandbox = true, nil }},
		{"host's network of a pod's own", "invalid", "network", namespaces(&cri.NamespaceOption{Network: cri.NamespaceMode_NODE})},
		{"host's ipc of a pod's own", "invalid", "ipc", namespaces(&cri.NamespaceOption{Ipc: cri.NamespaceMode_NODE})},
		{"pod's network where the pod has the host's", "", "", func(in *Input) {
			in.Sandbox.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}
		}},
		{"target", "", "", namespaces(&cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: "c"})},
		{"target without id", "invalid", "target_id: empty", namespaces(&cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET})},
		{"id without target", "", "", namespaces(&cri.NamespaceOption{TargetId: "c"})},
		{"unknown pid mode", "invalid", "pid: 9", namespaces(&cri.NamespaceOption{Pid: 9})},
		{"unknown network mode", "invalid", "network: 9", namespaces(&cri.NamespaceOption{Network: 9})},
		{"unknown ipc mode", "invalid", "ipc: 9", namespaces(&cri.NamespaceOption{Ipc: 9})},
		{"unknown user namespace mode", "invalid", "userns_options.mode: 9", namespaces(&cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{Mode: 9}})},
		{"host's user namespace", "", "", namespaces(&cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}})},
		{"mapped host's user namespace", "invalid", "userns_options", namespaces(&cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_NODE, Gids: []*cri.IDMapping{{}}}})},
		{"user namespace of a container", "invalid", "userns_options.mode", namespaces(&cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_CONTAINER}})},
		{"group without user", "invalid", "run_as_group", func(in *Input) { security(in).RunAsGroup = &cri.Int64Value{Value: 1} }},
		{"capability", "invalid", "add_capabilities", func(in *Input) { security(in).Capabilities = &cri.Capability{AddCapabilities: []string{"X"}} }},
		{"seccomp", "invalid", "seccomp.localhost_ref", func(in *Input) {
			security(in).Seccomp = &cri.SecurityProfile{ProfileType: localhost, LocalhostRef: "x"}
		}},
		{"no SELinux", "", "", func(in *Input) { security(in).SelinuxOptions = &cri.SELinuxOption{Level: "s0"} }},
		{"no SELinux, nonsense", "invalid", "selinux_options.level", func(in *Input) { security(in).SelinuxOptions = &cri.SELinuxOption{Level: "s0\n"} }},
		{"SELinux off", "", "", func(in *Input) {
			security(in).SelinuxOptions, in.Host.NoSELinux = &cri.SELinuxOption{Level: "s0"}, "it is switched off"
		}},
		{"SELinux without labels", "host", "selinux_options: u:::s0: the policy knows no containers", func(in *Input) {
			security(in).SelinuxOptions = &cri.SELinuxOption{User: "u", Level: "s0"}
			in.Host.NoSELinux, in.Host.SELinuxUnfit = "the policy knows no containers", true
		}},
		{"SELinux", "", "", func(in *Input) {
			security(in).SelinuxOptions, in.Host.SELinux = &cri.SELinuxOption{Level: "s0"}, selinuxHost().SELinux
		}},
		{"SELinux, nonsense", "invalid", "selinux_options.type", func(in *Input) {
			security(in).SelinuxOptions, in.Host.SELinux = &cri.SELinuxOption{Type: "a b"}, selinuxHost().SELinux
		}},
		{"empty SELinux", "", "", func(in *Input) { security(in).SelinuxOptions = &cri.SELinuxOption{} }},
		{"no AppArmor", "host", `apparmor: profile "p"`, func(in *Input) {
			security(in).Apparmor = &cri.SecurityProfile{ProfileType: localhost, LocalhostRef: "p"}
		}},
		{"no AppArmor, older", "host", `apparmor: profile "p"`, func(in *Input) { security(in).ApparmorProfile = "localhost/p" }},
		{"default AppArmor without AppArmor", "host", "apparmor: RuntimeDefault", func(in *Input) { security(in).Apparmor = &cri.SecurityProfile{} }},
		{"default AppArmor without the profile", "host", "apparmor_parser", func(in *Input) { security(in).Apparmor, in.Host.AppArmor = &cri.SecurityProfile{}, true }},
		{"default AppArmor", "", "", func(in *Input) {
			security(in).Apparmor, in.Host.AppArmor, in.Host.AppArmorDefault = &cri.SecurityProfile{}, true, "d"
		}},
		{"default AppArmor, older", "", "", func(in *Input) { security(in).ApparmorProfile = "runtime/default" }},
		{"unconfined AppArmor, older", "", "", func(in *Input) { security(in).ApparmorProfile = "unconfined" }},
		{"nonsense AppArmor, older", "invalid", "apparmor_profile", func(in *Input) { security(in).ApparmorProfile = "p" }},
		{"masked_paths", "invalid", "masked_paths", func(in *Input) { security(in).MaskedPaths = []string{"proc"} }},
		{"readonly_paths", "invalid", "readonly_paths", func(in *Input) { security(in).ReadonlyPaths = []string{""} }},
	} {
		in := testInput()
		c.change(&in)
		expect(t, c.name, Validate(in.Sandbox, in.Container, in.Host), c.class, c.contains)
	}
}

func TestValidateSandbox(t *testing.T) {
	type sandbox = cri.PodSandboxConfig
	namespaces := func(o *cri.NamespaceOption) func(*sandbox) {
		return func(s *sandbox) { s.Linux.SecurityContext.NamespaceOptions = o }
	}
	for _, c := range []struct {
		name, class, contains string
		change                func(*sandbox)
	}{
		{"ordinary", "", "", func(*sandbox) {}},
		{"no linux part", "", "", func(s *sandbox) { s.Linux = nil }},
		{"no name", "invalid", "metadata.name", func(s *sandbox) { s.Metadata = nil }},
		{"windows", "invalid", "windows", func(s *sandbox) { s.Windows = &cri.WindowsPodSandboxConfig{} }},
		{"cgroup_parent", "", "", func(s *sandbox) { s.Linux.CgroupParent = "/kubepods/burstable/pod1" }},
		{"cgroup_parent with a slash", "", "", func(s *sandbox) { s.Linux.CgroupParent = "/kubepods/" }},
		{"relative cgroup_parent", "invalid", "cgroup_parent", func(s *sandbox) { s.Linux.CgroupParent = "pods/pod1" }},
		{"climbing cgroup_parent", "invalid", "cgroup_parent", func(s *sandbox) { s.Linux.CgroupParent = "/a/../.." }},
		{"network", "invalid", "network: CONTAINER", namespaces(&cri.NamespaceOption{Network: cri.NamespaceMode_CONTAINER})},
		{"ipc", "invalid", "ipc: TARGET", namespaces(&cri.NamespaceOption{Ipc: cri.NamespaceMode_TARGET})},
		{"pid", "invalid", "pid: TARGET", namespaces(&cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET})},
		{"target", "", "", namespaces(&cri.NamespaceOption{TargetId: "x"})},
		{"the host's", "", "", func(s *sandbox) {
			s.Hostname = ""
			s.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Ipc: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_NODE}
		}},
		{"hostname of the host's network", "invalid", `hostname: "web"`, namespaces(&cri.NamespaceOption{Network: cri.NamespaceMode_NODE})},
		{"unknown network", "invalid", "network: 9", namespaces(&cri.NamespaceOption{Network: 9})},
		{"unknown ipc", "invalid", "ipc: 9", namespaces(&cri.NamespaceOption{Ipc: 9})},
		{"unknown pid", "invalid", "pid: 9", namespaces(&cri.NamespaceOption{Pid: 9})},
		{"unknown user namespace", "invalid", "userns_options.mode: 9", namespaces(&cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{Mode: 9}})},
		{"group without user", "invalid", "run_as_group", func(s *sandbox) { s.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 1} }},
		{"SELinux", "", "", func(s *sandbox) { s.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{Type: "t"} }},
		{"seccomp", "invalid", "seccomp_profile_path", func(s *sandbox) { s.Linux.SecurityContext.SeccompProfilePath = "x" }},
		{"AppArmor", "host", "apparmor", func(s *sandbox) {
			s.Linux.SecurityContext.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "p"}
		}},
		{"resources", "invalid", "linux.resources.cpu_period", func(s *sandbox) { s.Linux.Resources = &cri.LinuxContainerResources{CpuPeriod: -1} }},
		{"overhead", "invalid", "linux.overhead.cpu_period", func(s *sandbox) { s.Linux.Overhead = &cri.LinuxContainerResources{CpuPeriod: -1} }},
	} {
		in := testInput()
		c.change(in.Sandbox)
		expect(t, c.name, ValidateSandbox(in.Sandbox, in.Host), c.class, c.contains)
	}
	expect(t, "nil", ValidateSandbox(nil, Host{}), "invalid", "config: missing")
}

func TestResources(t *testing.T) {
	host := testInput().Host
	for _, c := range []struct {
		name                string
		limit, swap         int64
		counted             bool
		wantLimit, wantSwap int64
	}{
		{"nothing", 0, 0, true, 0, 0},
		{"no swap by default", 5, 0, true, 5, 5},
		{"some swap", 5, 7, true, 5, 7},
		{"all swap", 5, -1, true, 5, -1},
		{"no limit", -1, 0, true, -1, -1},
		{"not counted", 5, 0, false, 5, 0},
		{"not counted, all", 5, -1, false, 5, 0},
		{"not counted, some", 5, 7, false, 5, 0},
	} {
		host.SwapLimit = c.counted
		r, err := Resources(&cri.LinuxContainerResources{MemoryLimitInBytes: c.limit, MemorySwapLimitInBytes: c.swap}, host)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var limit, swap int64
		if r.Memory != nil && r.Memory.Limit != nil {
			limit = *r.Memory.Limit
		}
		if r.Memory != nil && r.Memory.Swap != nil {
			swap = *r.Memory.Swap
		}
		if limit != c.wantLimit || swap != c.wantSwap || r.CPU != nil {
			t.Errorf("%s: %d and %d, want %d and %d", c.name, limit, swap, c.wantLimit, c.wantSwap)
		}
	}
}
