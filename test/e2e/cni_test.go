package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

var (
	cniIPv4 = netip.MustParsePrefix("10.208.0.0/24")
	cniIPv6 = netip.MustParsePrefix("fd68::/64")
)

// cniNode is a `monopod runtime` whose host is a network namespace, so that what Debian's plugins leave for their network as a
// whole, a bridge and chains of iptables, goes with it.
type cniNode struct {
	*harness.Node
	t    *testing.T
	ctx  context.Context
	ipam string
	// netns is the path of the host's network namespace.
	netns string
	conn  *grpc.ClientConn
	rt    cri.RuntimeServiceClient
}

func newCNINode(t *testing.T, args ...string) *cniNode {
	t.Helper()
	c := &cniNode{t: t, ipam: t.TempDir()}
	// When the node has been reset, the plugins have been told that all sandboxes are gone.
	t.Cleanup(func() { c.wantLeases(0) })
	netns := "mpe2e" + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid())
	c.tool("ip", "netns", "add", netns)
	t.Cleanup(func() { c.tool("ip", "netns", "delete", netns) })
	c.tool("ip", "-n", netns, "link", "set", "lo", "up")
	c.netns = "/run/netns/" + netns
	c.Node = harness.NewNode(t, harness.Options{Command: "runtime", NetNS: c.netns, Args: args})
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute*harness.SlowFactor())
	t.Cleanup(cancel)
	return c
}

func (c *cniNode) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%v\n%s", err, c.Log()[max(0, len(c.Log())-4000):])
	}
}

func (c *cniNode) tool(name string, args ...string) string {
	c.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// start starts the process and connects to it.
func (c *cniNode) start() {
	c.t.Helper()
	c.Start()
	conn, err := grpc.NewClient("unix://"+c.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	c.check(err)
	c.t.Cleanup(func() { conn.Close() })
	c.conn, c.rt = conn, cri.NewRuntimeServiceClient(conn)
}

// configure writes the CNI configuration, or removes it.
func (c *cniNode) configure(on bool) {
	c.t.Helper()
	path := filepath.Join(c.Dir, "cni", "10-pods.conflist")
	if !on {
		c.check(os.Remove(path))
		return
	}
	c.check(os.MkdirAll(filepath.Dir(path), 0o755))
	c.check(os.WriteFile(path, fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		{"type": "bridge", "bridge": "cbr0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": %q,
			"ranges": [[{"subnet": %q}], [{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
		{"type": "portmap", "capabilities": {"portMappings": true}},
		{"type": "bandwidth", "capabilities": {"bandwidth": true}}]}`, c.ipam, cniIPv4, cniIPv6), 0o644))
}

func (c *cniNode) wantLeases(want int) {
	c.t.Helper()
	got, err := filepath.Glob(filepath.Join(c.ipam, "pods", "10.*"))
	if err != nil || len(got) != want {
		c.t.Errorf("addresses in use: %v, %v, want %d", got, err, want)
	}
}

func sandboxConfig(c *cniNode, name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, Hostname: name,
		LogDirectory: filepath.Join(c.Dir, "pods", name), Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}}}
}

func (c *cniNode) run(cfg *cri.PodSandboxConfig) string {
	c.t.Helper()
	resp, err := c.rt.RunPodSandbox(c.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	c.check(err)
	return resp.GetPodSandboxId()
}

// addresses are those of a ready sandbox.
func (c *cniNode) addresses(id string) (all []netip.Addr) {
	c.t.Helper()
	resp, err := c.rt.PodSandboxStatus(c.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	c.check(err)
	st := resp.GetStatus()
	if st.GetState() != cri.PodSandboxState_SANDBOX_READY {
		c.t.Fatalf("sandbox %v", st)
	}
	for _, ip := range append([]string{st.GetNetwork().GetIp()}, func() (more []string) {
		for _, a := range st.GetNetwork().GetAdditionalIps() {
			more = append(more, a.GetIp())
		}
		return more
	}()...) {
		addr, err := netip.ParseAddr(ip)
		c.check(err)
		all = append(all, addr)
	}
	return all
}

// shell runs a container in a sandbox.
func (c *cniNode) shell(sandbox string, cfg *cri.PodSandboxConfig, script string) {
	c.t.Helper()
	created, err := c.rt.CreateContainer(c.ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: cfg, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: busybox}, Command: []string{"sh", "-c", script}, LogPath: "c.log",
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}}}})
	c.check(err)
	_, err = c.rt.StartContainer(c.ctx, &cri.StartContainerRequest{ContainerId: created.GetContainerId()})
	c.check(err)
}

// get asks a web server, from a sandbox's network namespace, and returns its answer. (Debian's static busybox has a wget that
// crashes.)
func (c *cniNode) get(sandbox, addr string) (answer string, err error) {
	c.t.Helper()
	err = harness.InNetNS(filepath.Join(c.Dir, "run", "sandboxes", sandbox, "ns", "net"), func() error {
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		raw, err := io.ReadAll(conn)
		answer = string(raw)
		return err
	})
	return answer, err
}

func (c *cniNode) remove(id string) {
	c.t.Helper()
	_, err := c.rt.StopPodSandbox(c.ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	c.check(err)
	_, err = c.rt.RemovePodSandbox(c.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	c.check(err)
}

func (c *cniNode) networkReady() *cri.RuntimeCondition {
	c.t.Helper()
	resp, err := c.rt.Status(c.ctx, &cri.StatusRequest{})
	c.check(err)
	for _, cond := range resp.GetStatus().GetConditions() {
		if cond.GetType() == cri.NetworkReady {
			return cond
		}
	}
	c.t.Fatalf("status %v", resp)
	return nil
}

// TestCNI runs pods by Debian's plugins: the configuration comes while the node runs, and goes again.
func TestCNI(t *testing.T) {
	c := newCNINode(t)
	c.start()
	c.LoadImage(harness.Archive(t, busybox, images.Busybox))
	onBridge := c.run(sandboxConfig(c, "early"))
	if ip := c.addresses(onBridge)[0]; !netip.MustParsePrefix(c.PodCIDR).Contains(ip) {
		t.Errorf("without a configuration a pod has %s", ip)
	}

	c.configure(true)
	if cond := c.networkReady(); !cond.GetStatus() {
		t.Errorf("network: %v", cond)
	}
	serverCfg := sandboxConfig(c, "server")
	serverCfg.PortMappings = []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 80, HostPort: 8080}}
	serverCfg.Annotations = map[string]string{"kubernetes.io/egress-bandwidth": "100M"}
	server := c.run(serverCfg)
	ips := c.addresses(server)
	if len(ips) != 2 || !cniIPv4.Contains(ips[0]) || !cniIPv6.Contains(ips[1]) {
		t.Fatalf("addresses %v", ips)
	}
	c.shell(server, serverCfg, "mkdir /tmp/w; echo served >/tmp/w/index.html; exec busybox httpd -f -p 80 -h /tmp/w")
	client := c.run(sandboxConfig(c, "client"))
	get := func(addr string) func() (bool, string) {
		return func() (bool, string) {
			out, err := c.get(client, addr)
			return err == nil && strings.HasSuffix(out, "\r\n\r\nserved\n"), fmt.Sprint(out, err)
		}
	}
	harness.Eventually(t, "the pod's address", get(fmt.Sprintf("%s:80", ips[0])))
	harness.Eventually(t, "the pod's IPv6 address", get(fmt.Sprintf("[%s]:80", ips[1])))
	harness.Eventually(t, "the host port", get("10.208.0.1:8080"))
	// The loopback interface is up: nobody listens, which is told at once.
	if _, err := c.get(client, "127.0.0.1:80"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("loopback of the client: %v", err)
	}

	// Killed, and without its configuration, the node knows how each pod was connected.
	c.Kill()
	c.configure(false)
	c.start()
	if got := c.addresses(server); got[0] != ips[0] || got[1] != ips[1] {
		t.Errorf("addresses %v, had %v", got, ips)
	}
	harness.Eventually(t, "the host port after a restart", get("10.208.0.1:8080"))
	c.wantLeases(2)
	c.remove(server)
	c.wantLeases(1)
	c.remove(onBridge)
	late := c.run(sandboxConfig(c, "late"))
	if ip := c.addresses(late)[0]; !netip.MustParsePrefix(c.PodCIDR).Contains(ip) {
		t.Errorf("when the configuration is gone a pod has %s", ip)
	}
	// The client stays: it is for `monopod reset`.
}

// TestCNICrashes kills monopod at each step of a sandbox's connection: the next start ends it, and a retry succeeds.
func TestCNICrashes(t *testing.T) {
	c := newCNINode(t, "--network-mode", "cni")
	c.start()
	c.configure(true)
	kept := c.run(sandboxConfig(c, "kept"))
	ip := c.addresses(kept)[0]
	cfg := sandboxConfig(c, "crash")
	for _, point := range []string{"persisted", "added"} {
		c.Stop()
		t.Setenv("MONOPOD_FAILPOINTS", "network/cni/"+point+"=kill")
		c.start()
		if _, err := c.rt.RunPodSandbox(c.ctx, &cri.RunPodSandboxRequest{Config: cfg}); err == nil {
			t.Fatalf("%s: it was not killed", point)
		}
		c.Kill() // waits
		t.Setenv("MONOPOD_FAILPOINTS", "")
		c.start()
		c.wantLeases(1)
		id := c.run(cfg)
		c.wantLeases(2)
		c.remove(id)
	}
	id := c.run(cfg)
	c.Stop()
	t.Setenv("MONOPOD_FAILPOINTS", "network/cni/deleted=kill")
	c.start()
	if _, err := c.rt.StopPodSandbox(c.ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err == nil {
		t.Fatal("deleted: it was not killed")
	}
	c.Kill()
	t.Setenv("MONOPOD_FAILPOINTS", "")
	c.start()
	c.remove(id)
	c.wantLeases(1)
	if got := c.addresses(kept)[0]; got != ip {
		t.Errorf("the other pod has %s, had %s", got, ip)
	}
}

// TestEphemeralByCNI: an ephemeral node leaves nothing of what its pods had of either network. What the plugins keep for their
// network as a whole, a bridge and empty chains, is theirs.
func TestEphemeralByCNI(t *testing.T) {
	c := newCNINode(t, "--ephemeral")
	c.start()
	byBridge := c.run(sandboxConfig(c, "bridge")) // before there is a configuration
	c.configure(true)
	cfg := sandboxConfig(c, "ports")
	cfg.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "10M"}
	cfg.PortMappings = []*cri.PortMapping{{Protocol: cri.Protocol_TCP, HostPort: 8080, ContainerPort: 80}}
	byCNI := c.run(cfg)
	gone := c.run(sandboxConfig(c, "gone")) // its configuration is gone by the end
	addresses := append(c.addresses(byCNI), append(c.addresses(gone), c.addresses(byBridge)...)...)
	c.wantLeases(2)
	c.configure(false)
	c.Interrupt(syscall.SIGINT)
	c.wantLeases(0)
	place := harness.Place{Dirs: []string{filepath.Join(c.Dir, "data"), filepath.Join(c.Dir, "run")}, CgroupRoot: c.CgroupRoot, Bridge: c.Bridge}
	for _, left := range harness.Leftovers(t, place) {
		t.Errorf("left behind: %s", left)
	}
	for _, dir := range place.Dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left behind: %s (%v)", dir, err)
		}
	}
	in := func(args ...string) string {
		return c.tool("ip", append([]string{"netns", "exec", filepath.Base(c.netns)}, args...)...)
	}
	rest := in("ip", "-o", "link")
	for line := range strings.Lines(rest) {
		if name := strings.TrimSuffix(strings.Fields(line)[1], ":"); name != "lo" && name != "cbr0" {
			t.Errorf("an interface is left: %s", line)
		}
	}
	ns, err := os.Open(c.netns)
	c.check(err)
	defer ns.Close()
	nft, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	c.check(err)
	tables, err := nft.ListTables()
	c.check(err)
	for _, table := range tables {
		if strings.HasPrefix(table.Name, c.Bridge) || strings.Contains(table.Name, "monopod") {
			t.Errorf("a table is left: %s", table.Name)
		}
	}
	rest = in("iptables-save") + in("ip6tables-save")
	for _, addr := range addresses {
		if strings.Contains(rest, addr.String()+" ") || strings.Contains(rest, addr.String()+":") || strings.Contains(rest, addr.String()+"/") {
			t.Errorf("rules of %s are left: %s", addr, rest)
		}
	}
	if strings.Contains(rest, "dport 8080") {
		t.Errorf("rules are left: %s", rest)
	}
}

// TestCNIMissing: without a configuration only pods in the node's network run, and the node says what is missing.
func TestCNIMissing(t *testing.T) {
	c := newCNINode(t, "--network-mode", "cni")
	c.start()
	dir := filepath.Join(c.Dir, "cni")
	if cond := c.networkReady(); cond.GetStatus() || cond.GetReason() != "NetworkPluginNotReady" || !strings.Contains(cond.GetMessage(), dir) {
		t.Errorf("network: %v", cond)
	}
	c.check(os.MkdirAll(dir, 0o755))
	c.check(os.WriteFile(filepath.Join(dir, "05.conf"), []byte("{"), 0o644))
	if cond := c.networkReady(); cond.GetStatus() || !strings.Contains(cond.GetMessage(), filepath.Join(dir, "05.conf")) {
		t.Errorf("network: %v", cond)
	}
	if _, err := c.rt.RunPodSandbox(c.ctx, &cri.RunPodSandboxRequest{Config: sandboxConfig(c, "pod")}); err == nil || !strings.Contains(err.Error(), "05.conf") {
		t.Errorf("a pod of its own network: %v", err)
	}
	cfg := sandboxConfig(c, "host")
	cfg.Linux.SecurityContext.NamespaceOptions.Network, cfg.Hostname = cri.NamespaceMode_NODE, ""
	c.remove(c.run(cfg))
	c.check(os.Remove(filepath.Join(dir, "05.conf")))
	c.configure(true)
	if cond := c.networkReady(); !cond.GetStatus() {
		t.Errorf("network: %v", cond)
	}
	c.remove(c.run(sandboxConfig(c, "pod")))
}
