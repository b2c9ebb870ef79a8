package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
)

func TestMounts(t *testing.T) {
	n := newNode(t)
	sb := n.run("mounts")
	dir, file := filepath.Join(n.dir, "vol"), filepath.Join(n.dir, "file")
	n.check(os.MkdirAll(dir, 0o755))
	n.check(os.WriteFile(file, []byte("content"), 0o644))
	link := filepath.Join(n.dir, "link")
	n.check(os.Symlink(dir, link))

	cfg := shell("c", "echo written > /vol/w; cat /etc/a/file; touch /ro/x 2>&1; echo x > /dev/termination-log")
	cfg.Mounts = []*cri.Mount{
		{HostPath: link, ContainerPath: "/vol"},
		{HostPath: dir, ContainerPath: "/ro", Readonly: true},
		{HostPath: file, ContainerPath: "/etc/a/file", Readonly: true},
		{HostPath: filepath.Join(n.dir, "file"), ContainerPath: "/dev/termination-log"},
	}
	if out := n.output(sb, cfg); !strings.HasPrefix(out, "content") || !strings.Contains(out, "Read-only") {
		t.Error(out)
	}
	for path, want := range map[string]string{filepath.Join(dir, "w"): "written\n", file: "x\n"} {
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}

	t.Run("propagation", func(t *testing.T) {
		shared := filepath.Join(n.dir, "shared")
		n.check(os.MkdirAll(shared, 0o755))
		n.check(mount.Tmpfs(shared, mount.TmpfsOptions{}))
		defer func() { n.check(mount.UnmountBelow(shared)) }()
		n.check(unix.Mount("", shared, "", unix.MS_PRIVATE, "")) // on many hosts what is mounted is shared
		cfg := shell("prop", "until [ -e /m/sub/mark ]; do sleep 0.02; done; echo seen")
		for i, p := range []cri.MountPropagation{cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, cri.MountPropagation_PROPAGATION_BIDIRECTIONAL} {
			cfg.Metadata.Attempt = uint32(i)
			cfg.Mounts = []*cri.Mount{{HostPath: shared, ContainerPath: "/m", Propagation: p}}
			_, err := n.tryCreate(sb, cfg)
			wantCode(t, err, codes.FailedPrecondition, shared, p.String())
		}
		n.check(unix.Mount("", shared, "", unix.MS_SHARED, ""))
		cfg.Mounts[0].Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		id := n.launch(sb, cfg)
		sub := filepath.Join(shared, "sub")
		n.check(os.Mkdir(sub, 0o755))
		n.check(mount.Tmpfs(sub, mount.TmpfsOptions{}))
		n.check(os.WriteFile(filepath.Join(sub, "mark"), nil, 0o644))
		if st := n.wait(id); st.GetExitCode() != 0 {
			t.Error(st)
		}
	})
	t.Run("to the host", func(t *testing.T) {
		shared := filepath.Join(n.dir, "both")
		n.check(os.MkdirAll(shared, 0o755))
		n.check(mount.Tmpfs(shared, mount.TmpfsOptions{}))
		defer func() { n.check(mount.UnmountBelow(shared)) }()
		n.check(unix.Mount("", shared, "", unix.MS_SHARED, ""))
		sbCfg := n.sandboxConfig("privileged")
		sbCfg.Linux.SecurityContext.Privileged = true
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: sbCfg})
		n.check(err)
		cfg := shell("mounter", "mkdir /m/sub && mount -t tmpfs tmpfs /m/sub && echo inside > /m/sub/f; "+sleeper)
		cfg.Linux.SecurityContext.Privileged = true
		cfg.Mounts = []*cri.Mount{{HostPath: shared, ContainerPath: "/m", Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL}}
		n.launch(resp.GetPodSandboxId(), cfg)
		n.eventually("the container's mount on the host", func() bool {
			got, err := os.ReadFile(filepath.Join(shared, "sub/f"))
			return err == nil && string(got) == "inside\n"
		})
	})
	t.Run("what the runtime has mounted for others", func(t *testing.T) {
		secret := n.launch(sb, shell("secret", "echo 1 > /secret; "+sleeper))
		n.eventually("the secret", func() bool { return strings.Contains(n.exec(secret, "ls", "/"), "secret") })
		cfg := shell("snoop", fmt.Sprintf("ls /host%s/run/containers/%s/rootfs; grep %s/run /proc/self/mountinfo | grep -v /volumes/ | grep -e nsfs -e /rootfs; [ -e /host/etc/passwd ] && echo ok; touch /rw%s/vol/snooped", n.dir, secret, n.dir, n.dir))
		cfg.Mounts = []*cri.Mount{{HostPath: "/", ContainerPath: "/host", Readonly: true}, {HostPath: "/", ContainerPath: "/rw"}, {HostPath: n.dir, ContainerPath: "/dir"}}
		if out := n.output(sb, cfg); out != "ok" {
			t.Errorf("a mount of / shows %s", out)
		}
		if _, err := os.Stat(filepath.Join(dir, "snooped")); err != nil {
			t.Error(err)
		}
		// A container that sees the host's root keeps nobody from removing what was mounted when it was made.
		earlier, tmpfs := n.run("earlier"), filepath.Join(n.dir, "tmpfs")
		n.check(os.Mkdir(tmpfs, 0o755))
		n.check(mount.Tmpfs(tmpfs, mount.TmpfsOptions{}))
		watcher := shell("watcher", sleeper)
		watcher.Mounts = cfg.Mounts
		id := n.launch(sb, watcher)
		if left, err := mount.Below(filepath.Join(n.dir, "run/containers", id, "volumes")); err != nil || len(left) != 0 {
			t.Errorf("mounted on the host: %v, %v", left, err)
		}
		n.check(mount.Unmount(tmpfs))
		n.check(os.Remove(tmpfs))
		n.removeSandbox(earlier)
		n.remove(id)

		cfg.Mounts = []*cri.Mount{{HostPath: filepath.Join(n.dir, "run/containers"), ContainerPath: "/host"}}
		_, err := n.tryCreate(sb, cfg)
		wantCode(t, err, codes.InvalidArgument, "run/containers", "set apart")
		n.remove(secret)
		if left, err := os.ReadDir(filepath.Join(n.dir, "run/containers")); err != nil || len(left) != 2 { // of the two above
			t.Errorf("left %v, %v", left, err)
		}
	})
}

func TestMountRules(t *testing.T) {
	n := sharedNode(t)
	sb := n.run("rules")
	vol := filepath.Join(n.dir, "vol")
	n.check(os.MkdirAll(filepath.Join(vol, "inner"), 0o755))
	n.check(mount.Tmpfs(filepath.Join(vol, "inner"), mount.TmpfsOptions{}))
	defer func() { n.check(mount.UnmountBelow(vol)) }()
	n.check(os.WriteFile(filepath.Join(vol, "tool"), []byte("#!/bin/sh\necho runs\n"), 0o755))

	t.Run("honoured", func(t *testing.T) {
		cfg := shell("c", `touch /ro/a /ro/inner/a /rro/b /rro/inner/b /rw/c /rw/inner/c 2>&1; /opts/tool 2>&1; /rw/tool; grep -c ' /opts .*nosuid,nodev,noexec' /proc/mounts`)
		cfg.Mounts = []*cri.Mount{
			{HostPath: vol, ContainerPath: "/ro", Readonly: true},
			{HostPath: vol, ContainerPath: "/rw", SelinuxRelabel: true}, // there is nothing to label here
			{HostPath: vol, ContainerPath: "/opts", MountOptions: []string{"noexec", "nodev", "nosuid"}},
		}
		features := n.features()
		want := []string{"/ro/a: Read-only", "/opts/tool: Permission denied", "\nruns\n1"}
		if features.GetRecursiveReadOnlyMounts() {
			cfg.Mounts = append(cfg.Mounts, &cri.Mount{HostPath: vol, ContainerPath: "/rro", Readonly: true, RecursiveReadOnly: true})
			want = append(want, "/rro/b: Read-only", "/rro/inner/b: Read-only")
		}
		got := n.output(sb, cfg)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q is not in %q", w, got)
			}
		}
		for file, want := range map[string]bool{"a": false, "inner/a": true, "b": false, "inner/b": false, "c": true, "inner/c": true} {
			if _, err := os.Stat(filepath.Join(vol, file)); (err == nil) != want {
				t.Errorf("%s was written: %t, want %t", file, err == nil, want)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, c := range []struct {
			m     *cri.Mount
			words []string
		}{
			{&cri.Mount{HostPath: vol + "/none", ContainerPath: "/v"}, []string{"/v", "host_path", vol + "/none"}},
			{&cri.Mount{HostPath: vol, ContainerPath: "/v", RecursiveReadOnly: true}, []string{"recursive_read_only", "readonly"}},
			{&cri.Mount{HostPath: vol, ContainerPath: "/v", RecursiveReadOnly: true, Readonly: true, Propagation: cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
				[]string{"recursive_read_only", "PROPAGATION_PRIVATE"}},
			{&cri.Mount{HostPath: vol, ContainerPath: "/v", MountOptions: []string{"size=5"}}, []string{"mount_options", "size=5"}},
			{&cri.Mount{HostPath: vol, ContainerPath: "v"}, []string{"container_path"}},
		} {
			cfg := shell("refused", sleeper)
			cfg.Mounts = []*cri.Mount{c.m}
			_, err := n.tryCreate(sb, cfg)
			wantCode(t, err, codes.InvalidArgument, c.words...)
		}
		n.wantNothing()
	})
	t.Run("of the pod", func(t *testing.T) {
		writer := n.launch(sb, shell("writer", "echo shared > /dev/shm/f; echo 10.9.9.9 other >> /etc/hosts; "+sleeper))
		n.eventually("the file", func() bool { return strings.Contains(n.exec(writer, "ls", "/dev/shm"), "f") })
		cfg := shell("reader", "cat /dev/shm/f; df -k /dev/shm | tail -n 1; cat /etc/hostname; grep other /etc/hosts; touch /etc/hosts 2>&1; cat /etc/resolv.conf")
		cfg.Linux.SecurityContext.ReadonlyRootfs = true
		got := n.output(sb, cfg)
		for _, want := range []string{"shared\n", " 65664 ", "\nrules\n10.9.9.9 other\n", "/etc/hosts: Read-only"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in %q", want, got)
			}
		}
		other := shell("other", "ls /dev/shm")
		if got := n.output(n.run("another"), other); got != "" {
			t.Errorf("another pod's shared memory holds %q", got)
		}
	})
}

// features are those of the default runtime handler.
func (n *node) features() *cri.RuntimeHandlerFeatures {
	n.Helper()
	resp, err := n.rt.Status(n.ctx, &cri.StatusRequest{})
	n.check(err)
	for _, h := range resp.GetRuntimeHandlers() {
		if h.GetName() == "" {
			return h.GetFeatures()
		}
	}
	n.Fatal("there is no default runtime handler")
	return nil
}

func TestDevices(t *testing.T) {
	n := newNode(t)
	sb := n.run("devices")
	cfg := shell("c", "ls -l /dev/my; head -c 4 /dev/my | wc -c; head -c 1 /dev/kmsg 2>&1")
	cfg.Devices = []*cri.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/my", Permissions: "r"}}
	if out := n.output(sb, cfg); !strings.Contains(out, "1,   5") || !strings.Contains(out, "\n4\n") {
		t.Error(out)
	}
}

const widget = `{"cdiVersion": "0.6.0", "kind": "example.com/widget", "devices": [
	{"name": "w1", "containerEdits": {"env": ["WIDGET=w1"], "deviceNodes": [{"path": "/dev/widget", "hostPath": "/dev/zero"}]}},
	{"name": "bad", "containerEdits": {"deviceNodes": [{"path": "/dev/gone", "hostPath": "/dev/no-such"}]}}],
	"containerEdits": {"env": ["ALL=1"]}}`

func TestCDI(t *testing.T) {
	n := newNode(t)
	sb := n.run("cdi")
	spec := func(dir, name, text string) string {
		path := filepath.Join(n.dir, dir, name)
		n.check(os.MkdirAll(filepath.Dir(path), 0o755))
		n.check(os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	create := func(device string) error {
		cfg := shell("refused", sleeper)
		cfg.CDIDevices = []*cri.CDIDevice{{Name: device}}
		_, err := n.tryCreate(sb, cfg)
		return err
	}
	good := spec("cdi", "widget.json", widget)
	cfg := shell("c", "echo $WIDGET $ALL; head -c 3 /dev/widget | wc -c")
	cfg.CDIDevices = []*cri.CDIDevice{{Name: "example.com/widget=w1"}}
	if out := n.output(sb, cfg); out != "w1 1\n3" {
		t.Error(out)
	}
	wantCode(t, create("example.com/widget=w9"), codes.InvalidArgument, "example.com/widget=w9", filepath.Join(n.dir, "cdi"), filepath.Join(n.dir, "cdi2"), good, "bad, w1")
	wantCode(t, create("example.com/gadget=g"), codes.InvalidArgument, "example.com/gadget=g", "no spec", "example.com/gadget")
	wantCode(t, create("example.com/widget=bad"), codes.FailedPrecondition, "/dev/no-such", "example.com/widget=bad", good)
	broken := spec("cdi", "broken.json", `{"cdiVersion": "0.6.0", "kind": "example.com/broken", "devices": [{"name": 7}]}`)
	wantCode(t, create("example.com/broken=1"), codes.InvalidArgument, broken)
	twice := spec("cdi", "twice.json", widget)
	wantCode(t, create("example.com/widget=w1"), codes.InvalidArgument, "example.com/widget=w1", good, twice)
	n.check(os.Remove(twice))
	// A spec of a folder of higher priority replaces the device, as the CDI specification says.
	spec("cdi2", "widget.json", strings.ReplaceAll(widget, "WIDGET=w1", "WIDGET=other"))
	if out := n.output(sb, cfg); !strings.HasPrefix(out, "other") {
		t.Error(out)
	}
}
