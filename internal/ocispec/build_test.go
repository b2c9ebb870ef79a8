package ocispec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var rewrite = flag.Bool("rewrite", false, "write anew testdata from what Build returns")

// testInput is an ordinary container, on a cgroup v2 host that lacks one capability.
func testInput() Input {
	return Input{
		Sandbox: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u-1"},
			Hostname: "web",
			Linux:    &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{}},
		},
		Container: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "nginx"},
			Image:    &cri.ImageSpec{Image: "docker.io/library/nginx:1"},
			Linux:    &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{}},
		},
		Image: imagespec.ImageConfig{
			Entrypoint: []string{"/entrypoint.sh"},
			Cmd:        []string{"nginx", "-g", "daemon off;"},
			Env:        []string{"PATH=/usr/sbin:/usr/bin", "VERSION=1"},
			WorkingDir: "/srv",
		},
		RootFS:      "/run/monopod/containers/c1/rootfs",
		User:        ResolvedUser{Home: "/root", AdditionalGids: []uint32{0}},
		Hostname:    "web",
		Namespaces:  Namespaces{Network: "/run/monopod/sandboxes/s1/ns/net", IPC: "/run/monopod/sandboxes/s1/ns/ipc", UTS: "/run/monopod/sandboxes/s1/ns/uts"},
		CgroupsPath: "/monopod/pods/pod1/c1",
		Files: SandboxFiles{
			ResolvConf: "/run/monopod/sandboxes/s1/resolv.conf", Hosts: "/run/monopod/sandboxes/s1/hosts",
			Hostname: "/run/monopod/sandboxes/s1/hostname", Shm: "/run/monopod/sandboxes/s1/shm",
		},
		Host: Host{
			Capabilities: slices.DeleteFunc(knownCapabilities(), func(c string) bool { return c == "CAP_SYS_RESOURCE" }),
			Devices:      []Device{{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229, FileMode: 0o666}, {Path: "/dev/sda", Type: "b", Major: 8, FileMode: 0o660, GID: 6}},
			CgroupV2:     true,
			SwapLimit:    true,

			RecursiveReadOnly: true,

			HugepageSizes: []string{"2MB"},
		},
	}
}

func security(in *Input) *cri.LinuxContainerSecurityContext {
	return in.Container.Linux.SecurityContext
}

// addMount adds a CRI mount, resolved to its own host path.
func addMount(in *Input, m *cri.Mount) {
	in.Container.Mounts = append(in.Container.Mounts, m)
	in.Mounts = append(in.Mounts, ResolvedMount{Mount: m, Source: m.HostPath})
}

func TestBuildGolden(t *testing.T) {
	for name, change := range map[string]func(in *Input){
		"plain": func(*Input) {},
		"everything": func(in *Input) {
			c := in.Container
			c.Command, c.Args, c.WorkingDir, c.Tty = []string{"/bin/server"}, []string{"--port", "80"}, "/work", true
			c.Envs = []*cri.KeyValue{{Key: "VERSION", Value: []byte("2")}, {Key: "NEW", Value: []byte("a=b")}}
			in.User = ResolvedUser{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 10, 2000}, Home: "/home/app"}
			addMount(in, &cri.Mount{ContainerPath: "/data/cache", HostPath: "/host/cache", Readonly: true, RecursiveReadOnly: true})
			addMount(in, &cri.Mount{ContainerPath: "/data", HostPath: "/host/data", MountOptions: []string{"noexec", "nodev"}})
			addMount(in, &cri.Mount{ContainerPath: "/etc/hosts", HostPath: "/host/hosts"})
			addMount(in, &cri.Mount{ContainerPath: "/prop", HostPath: "/host/prop", Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL})
			c.Devices = []*cri.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "rw"}}
			in.Devices = []Device{{Path: "/dev/gpu0", Type: "c", Major: 195, FileMode: 0o666, Permissions: "rw"}}
			c.Linux.Resources = &cri.LinuxContainerResources{
				CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 96 << 20,
				OomScoreAdj: 900, CpusetCpus: "0-1", CpusetMems: "0",
				HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}, {PageSize: "1GB"}},
				Unified:        map[string]string{"memory.high": "50000000"},
			}
			sc := security(in)
			sc.Capabilities = &cri.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"MKNOD"}, AddAmbientCapabilities: []string{"NET_ADMIN"}}
			sc.ReadonlyRootfs, sc.NoNewPrivs = true, true
			sc.MaskedPaths, sc.ReadonlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
			sc.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "strict"}
			in.Host.AppArmor = true
			in.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
		},
		"privileged": func(in *Input) {
			in.Sandbox.Linux.SecurityContext.Privileged = true
			sc := security(in)
			sc.Privileged = true
			sc.MaskedPaths, sc.ReadonlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
			sc.Seccomp = &cri.SecurityProfile{}
			in.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
			addMount(in, &cri.Mount{ContainerPath: "/prop/", HostPath: "/host/prop", Propagation: cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER})
		},
		"host-namespaces-v1": func(in *Input) {
			in.Namespaces = Namespaces{HostPID: true}
			in.Hostname = "node-1"
			in.Files = SandboxFiles{ResolvConf: "/run/monopod/sandboxes/s1/resolv.conf", Shm: "/dev/shm"}
			in.Host.CgroupV2 = false
			in.Host.MinOOMScoreAdj = new(0)
			in.Container.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: -998, MemoryLimitInBytes: 1 << 20}
		},
		"host-dev": func(in *Input) {
			addMount(in, &cri.Mount{ContainerPath: "/dev", HostPath: "/dev"})
			addMount(in, &cri.Mount{ContainerPath: "/sys", HostPath: "/sys", Readonly: true})
			in.Namespaces.PID = "/proc/42/ns/pid"
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := testInput()
			change(&in)
			before, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(spec, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if after, _ := json.Marshal(in); !bytes.Equal(before, after) {
				t.Error("Build changed its input")
			}
			golden(t, name+".json", append(got, '\n'))
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("not as in %s (rewrite it with go test -rewrite, then read the difference):\n%s", file, got)
	}
}

func TestArguments(t *testing.T) {
	l := func(s ...string) []string { return s }
	for _, c := range []struct {
		name                           string
		entrypoint, cmd, command, args []string
		want                           []string
	}{
		{"image", l("e"), l("c"), nil, nil, l("e", "c")},
		{"cmd only", nil, l("c", "d"), nil, nil, l("c", "d")},
		{"args replace cmd", l("e"), l("c"), nil, l("a"), l("e", "a")},
		{"command replaces both", l("e"), l("c"), l("x"), nil, l("x")},
		{"command and args", l("e"), l("c"), l("x"), l("a"), l("x", "a")},
		{"args without entrypoint", nil, l("c"), nil, l("a"), l("a")},
		{"entrypoint taken back", l(""), l("c"), nil, nil, l("c")},
		{"entrypoint taken back, args", l(""), l("c"), nil, l("a"), l("a")},
		{"entrypoint taken back, nothing else", l(""), nil, nil, nil, nil},
		{"nothing", nil, nil, nil, nil, nil},
		{"empty program", nil, nil, l(""), l("a"), nil},
	} {
		in := testInput()
		in.Image.Entrypoint, in.Image.Cmd = c.entrypoint, c.cmd
		in.Container.Command, in.Container.Args = c.command, c.args
		spec, err := Build(in)
		switch {
		case c.want == nil:
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "command: ") {
				t.Errorf("%s: %v, want InvalidArgument that names command", c.name, err)
			}
		case err != nil || !slices.Equal(spec.Process.Args, c.want):
			t.Errorf("%s: %v, %v", c.name, spec, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	in := testInput()
	in.Image.Env = []string{"A=1", "B=1", "rubbish", "A=2"}
	in.Container.Envs = []*cri.KeyValue{{Key: "B", Value: []byte("3")}, {Key: "HOME", Value: []byte("/x")}, {Key: "B", Value: []byte("4")}, {Key: "E"}}
	in.Container.Tty = true
	want := []string{"A=2", "B=4", "HOME=/x", "E=", "PATH=" + defaultPath, "HOSTNAME=web", "TERM=xterm"}
	if got := environment(in); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWorkingDir(t *testing.T) {
	for _, c := range []struct{ image, container, want string }{
		{"", "", "/"}, {"/srv", "", "/srv"}, {"srv", "", "/srv"}, {"/srv", "/work", "/work"},
	} {
		in := testInput()
		in.Image.WorkingDir, in.Container.WorkingDir = c.image, c.container
		if got := workingDir(in); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestExecProcess(t *testing.T) {
	spec, err := Build(testInput())
	if err != nil {
		t.Fatal(err)
	}
	env := slices.Clone(spec.Process.Env)
	p, err := ExecProcess(spec.Process, []string{"sh"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Args, []string{"sh"}) || !p.Terminal || p.Cwd != "/srv" || !slices.Contains(p.Env, "TERM=xterm") || p.Capabilities == nil {
		t.Errorf("%+v", p)
	}
	if !slices.Equal(spec.Process.Env, env) || spec.Process.Terminal {
		t.Error("the container's own process changed")
	}
	for _, args := range [][]string{nil, {""}} {
		if _, err := ExecProcess(spec.Process, args, false); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v, want InvalidArgument", args, err)
		}
	}
}

// What the caller did not resolve is its mistake, not its client's.
func TestCallersMistakes(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"RootFS":      func(in *Input) { in.RootFS = "" },
		"CgroupsPath": func(in *Input) { in.CgroupsPath = "pods/x" },
		"HostPID":     func(in *Input) { in.Namespaces.HostPID, in.Namespaces.PID = true, "/proc/1/ns/pid" },
		"UTS":         func(in *Input) { in.Namespaces.UTS = "ns/uts" },
		"resolved":    func(in *Input) { in.Container.Mounts = []*cri.Mount{{ContainerPath: "/a", HostPath: "/b"}} },
		"source": func(in *Input) {
			addMount(in, &cri.Mount{ContainerPath: "/a", HostPath: "/b"})
			in.Mounts[0].Source = ""
		},
	} {
		in := testInput()
		change(&in)
		if _, err := Build(in); !errdefs.IsInternal(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want Internal", name, err)
		}
	}
}

// A specification is the same each time, whatever the order of the maps in its input.
func TestBuildIsDeterministic(t *testing.T) {
	in := testInput()
	in.Container.Linux.Resources = &cri.LinuxContainerResources{Unified: map[string]string{"a.b": "1", "c.d": "2", "e.f": "3"}}
	var first []byte
	for range 20 {
		spec, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(spec)
		if first == nil {
			first = got
		}
		if !bytes.Equal(got, first) {
			t.Fatal("two results differ")
		}
	}
}
