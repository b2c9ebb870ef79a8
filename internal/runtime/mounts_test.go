package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
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
	t.Run("others' root file systems", func(t *testing.T) {
		if !copiesStayUnbindable(t) {
			t.Skip("this kernel (6.18 does) forgets in a new mount namespace that a mount is unbindable")
		}
		secret := n.launch(sb, shell("secret", "echo 1 > /secret; "+sleeper))
		n.eventually("the secret", func() bool { return strings.Contains(n.exec(secret, "ls", "/"), "secret") })
		cfg := shell("snoop", fmt.Sprintf("ls /host%s/rootfs", filepath.Join(n.dir, "run/containers", secret)))
		cfg.Mounts = []*cri.Mount{{HostPath: "/", ContainerPath: "/host"}}
		if out := n.output(sb, cfg); strings.Contains(out, "secret\n") {
			t.Errorf("a recursive bind mount of / holds another container's root: %s", out)
		}
	})
}

// copiesStayUnbindable tries it out in a mount namespace of its own, which it copies.
func copiesStayUnbindable(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("unshare", "-m", "sh", "-c",
		"mount --bind "+dir+" "+dir+" && mount --make-unbindable "+dir+" && unshare -m --propagation unchanged cat /proc/self/mountinfo").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " "+dir+" ") {
			return strings.Contains(line, " unbindable ")
		}
	}
	t.Fatalf("no mount at %s in %s", dir, out)
	return false
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
	wantCode(t, create("example.com/widget=bad"), codes.InvalidArgument, "/dev/no-such")
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
