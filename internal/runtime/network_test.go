package runtime_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// TestHostPorts: port_mappings lead from the host to the pod, belong to one pod at a time, and end with it.
func TestHostPorts(t *testing.T) {
	n := newNode(t)
	tcp, local := freePort(t), freePort(t)
	config := func(name string) *cri.PodSandboxConfig {
		cfg := n.sandboxConfig(name)
		cfg.PortMappings = []*cri.PortMapping{
			{ContainerPort: 8080, HostPort: tcp},
			{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: local, HostIp: "127.0.0.1"},
			{Protocol: cri.Protocol_UDP, ContainerPort: 53},
		}
		return cfg
	}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: config("one")})
	n.check(err)
	n.launch(resp.GetPodSandboxId(), shell("server", "while :; do echo hello | nc -l -p 8080; done"))
	for _, port := range []int32{tcp, local} {
		if got := n.readFrom(port); got != "hello\n" {
			t.Errorf("port %d of the host: %q", port, got)
		}
	}
	_, err = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: config("two")})
	wantCode(t, err, codes.AlreadyExists, fmt.Sprintf("port %d", tcp), "default/one")
	n.restart()
	if got := n.readFrom(tcp); got != "hello\n" {
		t.Errorf("after a restart: %q", got)
	}
	n.removeSandbox(resp.GetPodSandboxId())
	resp, err = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: config("two")})
	n.check(err)
	n.removeSandbox(resp.GetPodSandboxId())
	if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", tcp), time.Second); err == nil {
		c.Close()
		t.Error("the host's port is mapped after its pod")
	}
}

// readFrom reads what a port of the host's loopback says. The server in the pod may not listen yet, or again.
func (n *node) readFrom(port int32) (said string) {
	n.Helper()
	for end := time.Now().Add(patience()); time.Now().Before(end); {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err != nil {
			continue
		}
		c.SetDeadline(time.Now().Add(patience()))
		buf := make([]byte, 100)
		count, _ := c.Read(buf)
		c.Close()
		if count > 0 {
			return string(buf[:count])
		}
	}
	return ""
}

// TestTwoFamilies: a sandbox has an address of each family, and its files say so.
func TestTwoFamilies(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Skip("this kernel has no IPv6")
	}
	n := prepareNode(t)
	a := n.cidr.Addr().As4()
	n.cidr6 = netip.MustParsePrefix(fmt.Sprintf("fd6d:%x:%x::/64", a[1], a[2]))
	n.start()
	id := n.run("two")
	st, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	n.check(err)
	nw := st.GetStatus().GetNetwork()
	if !n.cidr.Contains(netip.MustParseAddr(nw.GetIp())) || len(nw.GetAdditionalIps()) != 1 || !n.cidr6.Contains(netip.MustParseAddr(nw.GetAdditionalIps()[0].GetIp())) {
		t.Fatalf("network status %v", nw)
	}
	hosts, err := os.ReadFile(n.dir + "/run/sandboxes/" + id + "/tmpfs/hosts")
	n.check(err)
	for _, ip := range []string{nw.GetIp(), nw.GetAdditionalIps()[0].GetIp()} {
		if !strings.Contains(string(hosts), ip+"\ttwo\n") {
			t.Errorf("%s is not in the hosts file:\n%s", ip, hosts)
		}
	}
	n.removeSandbox(id)
}
