package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// peer is a CRI runtime that is measured.
type peer struct {
	name   string
	rt     cri.RuntimeServiceClient
	images cri.ImageServiceClient
	dir    string // for logs
	mark   string // what the command lines of all its processes have, but for those of containers
	runs   int    // makes the names of pods unique
}

func dial(b *testing.B, socket string) (cri.RuntimeServiceClient, cri.ImageServiceClient) {
	b.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
}

func startMonopod(b *testing.B) *peer {
	b.Helper()
	n := harness.StartNode(b, harness.Options{Command: "runtime", Args: []string{"--log-level", "info", "--pod-cidr", "10.198.0.0/16"}}) // room for all the pods
	n.LoadImage(harness.Archive(b, image, images.Busybox))
	rt, imageService := dial(b, n.CRISocket())
	return &peer{name: "monopod", rt: rt, images: imageService, dir: n.Dir, mark: n.Dir}
}

// pause is what holds a pod of containerd's together.
const pause = "localhost/bench/pause:1"

// containerdConfig is the configuration of a containerd of its own: nothing of it is shared with one that the host may have. It
// connects pods by CNI's bridge plugin, the counterpart of the built-in network.
const containerdConfig = `version = 2
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
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/cni"
`

const bridgeConfig = `{"cniVersion": "0.4.0", "name": "bench", "plugins": [{"type": "bridge", "bridge": "%s", "isGateway": true, "ipMasq": true,
	"ipam": {"type": "host-local", "dataDir": "%s/ipam", "ranges": [[{"subnet": "10.199.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]}`

// startContainerd starts Debian's containerd in a folder of its own, and cleans up after it.
func startContainerd(b *testing.B) *peer {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "mp-peer-")
	if err != nil {
		b.Fatal(err)
	}
	bridge := fmt.Sprintf("mpp%d", os.Getpid())
	write := func(name, content string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	write("config.toml", fmt.Sprintf(containerdConfig, dir))
	write("cni/10-bench.conflist", fmt.Sprintf(bridgeConfig, bridge, dir))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("containerd", "--config", filepath.Join(dir, "config.toml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		b.Fatalf("%v; the peer is the Debian package containerd", err)
	}
	socket := filepath.Join(dir, "containerd.sock")
	rt, imageService := dial(b, socket)
	p := &peer{name: "containerd", rt: rt, images: imageService, dir: dir, mark: dir}
	b.Cleanup(func() {
		p.removeAll(b)
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && b.Failed() {
			b.Logf("containerd: %v, log %s", err, log.Name())
			return
		}
		exec.Command("ip", "link", "del", bridge).Run() // it is not there when no pod was connected
		os.RemoveAll(dir)
	})
	harness.Eventually(b, "containerd serves CRI", func() (bool, string) {
		_, err := p.rt.Version(context.Background(), &cri.VersionRequest{})
		return err == nil, fmt.Sprint(err)
	})
	for name, makeImage := range map[string]harness.ImageMaker{image: images.Busybox, pause: pauseImage} {
		out, err := exec.Command("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", harness.Archive(b, name, makeImage)).CombinedOutput()
		if err != nil {
			b.Fatalf("import %s: %v\n%s", name, err, out)
		}
	}
	return p
}

func pauseImage(name string) (ociarchive.Image, error) {
	img, err := images.Busybox(name)
	img.Config.Entrypoint = []string{"sleep", "infinity"}
	return img, err
}

// removeAll removes all pods.
func (p *peer) removeAll(b *testing.B) {
	b.Helper()
	ctx := context.Background()
	list, err := p.rt.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		b.Errorf("%s: %v", p.name, err)
		return
	}
	for _, sb := range list.GetItems() {
		_, serr := p.rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb.GetId()})
		if _, err := p.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb.GetId()}); err != nil || serr != nil {
			b.Errorf("%s: %v, %v", p.name, serr, err)
		}
	}
}

// pss is the memory of all its processes but the containers' own, in kB.
func (p *peer) pss(b *testing.B) int {
	b.Helper()
	kB, _ := harness.PSS(b, p.mark)
	return kB
}
