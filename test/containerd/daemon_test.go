package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// The images that are loaded: one for pods, and the one that holds a pod's namespaces.
const (
	busybox = "localhost/test/busybox:1"
	pause   = "localhost/test/pause:1"
)

// config is containerd's. Pods are connected by CNI's bridge plugin. What a host without CAP_SYS_RESOURCE and AppArmor lacks is left out.
const config = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pause + `"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "%[1]s/runc"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/cni"
`

const network = `{"cniVersion": "0.4.0", "name": "test", "plugins": [{"type": "bridge", "bridge": "%s", "isGateway": true,
	"ipam": {"type": "host-local", "dataDir": "%s/ipam", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// shared is where containerd 1.6 has its shims' sockets, wherever its state is.
const shared = "/run/containerd/s"

// daemon is a containerd.
type daemon struct {
	t      *testing.T
	dir    string
	cgroup string
	cmd    *exec.Cmd
	rt     cri.RuntimeServiceClient
}

// start starts a containerd, and removes it and all that it has made after the test.
func start(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mp-containerd-")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, cgroup: fmt.Sprintf("/mp-containerd-%d", os.Getpid())}
	bridge := fmt.Sprintf("mpc%d", os.Getpid())
	harness.CheckHost(t, harness.Place{Dirs: []string{dir}, CgroupRoot: d.cgroup, Bridge: bridge})
	t.Cleanup(func() {
		if err := tree.Remove(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	d.write("config.toml", fmt.Sprintf(config, dir))
	d.write("cni/10-test.conflist", fmt.Sprintf(network, bridge, dir, harness.PodRange(t)))
	conn, err := grpc.NewClient("unix://"+d.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d.rt = cri.NewRuntimeServiceClient(conn)
	t.Cleanup(func() { d.end(bridge) })
	// CNI's plugin takes one that is there; it is not to look like one that a node has left.
	if out, err := exec.Command("ip", "link", "add", bridge, "type", "bridge").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d.launch()
	d.load(busybox, images.Busybox)
	d.load(pause, func(name string) (ociarchive.Image, error) {
		img, err := images.Busybox(name)
		img.Config.Entrypoint = []string{"sleep", "infinity"}
		return img, err
	})
	return d
}

// launch runs the program until it serves CRI.
func (d *daemon) launch() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command("containerd", "--config", filepath.Join(d.dir, "config.toml"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatalf("%v; it is of the Debian package containerd", err)
	}
	harness.Eventually(d.t, "containerd serves CRI", func() (bool, string) {
		_, err := d.rt.Version(d.t.Context(), &cri.VersionRequest{})
		return err == nil, fmt.Sprint(err)
	})
}

// crash kills containerd, but none of its containers, and runs it again.
func (d *daemon) crash() {
	d.t.Helper()
	_ = d.cmd.Process.Kill() // it may have ended
	_ = d.cmd.Wait()         // it was killed
	d.launch()
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "containerd.sock") }

func (d *daemon) write(name, content string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) load(name string, makeImage harness.ImageMaker) {
	d.t.Helper()
	out, err := exec.Command("ctr", "--address", d.socket(), "--namespace", "k8s.io", "images", "import", harness.Archive(d.t, name, makeImage)).CombinedOutput()
	if err != nil {
		d.t.Fatalf("import %s: %v\n%s", name, err, out)
	}
}

// held are the sandboxes and containers that it has.
func (d *daemon) held() (all []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sandboxes, err := d.rt.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	containers, err := d.rt.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes.Items {
		all = append(all, "sandbox "+s.GetMetadata().GetName())
	}
	for _, c := range containers.Containers {
		all = append(all, "container "+c.GetMetadata().GetName())
	}
	return all, nil
}

// end removes what a test that failed has left, and ends containerd.
func (d *daemon) end(bridge string) {
	if d.cmd == nil || d.cmd.Process == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := d.rt.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		d.t.Error(err)
	}
	for _, s := range list.GetItems() {
		_, serr := d.rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.Id})
		_, rerr := d.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.Id})
		if err := errors.Join(serr, rerr); err != nil {
			d.t.Error(err)
		}
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	err = d.cmd.Wait()
	if log, rerr := os.ReadFile(filepath.Join(d.dir, "log")); d.t.Failed() || err != nil {
		d.t.Logf("containerd: %v, %v\n%s", err, rerr, log[max(0, len(log)-3000):])
	}
	d.killShims()
	d.removeCgroups()
	if out, err := exec.Command("ip", "link", "del", bridge).CombinedOutput(); err != nil {
		d.t.Errorf("%v: %s", err, out)
	}
	// Whether somebody else's shims are there too, these know: only empty folders can be removed.
	_ = os.Remove(shared)
	_ = os.Remove(filepath.Dir(shared))
}

// killShims ends what outlives containerd: after a test that failed, shims, by whose arguments they are known, with their containers.
func (d *daemon) killShims() {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range dirs {
		args, err := os.ReadFile(p + "/cmdline")
		pid, perr := strconv.Atoi(filepath.Base(p))
		if err == nil && perr == nil && pid != os.Getpid() && strings.Contains(string(args), d.socket()) && strings.Contains(string(args), "containerd-shim") {
			d.t.Errorf("a shim was left: %q", strings.ReplaceAll(string(args), "\x00", " "))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// removeCgroups removes the cgroups that the pods were in. runc removes those of containers only.
func (d *daemon) removeCgroups() {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*" + d.cgroup)
	for _, root := range append(roots, "/sys/fs/cgroup"+d.cgroup) {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			_ = os.Remove(dir) // what cannot be removed is found by CheckHost
		}
	}
}
