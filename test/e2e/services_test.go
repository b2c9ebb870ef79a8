package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"monopod.dev/monopod/test/harness"
)

// echoEnv has this test's binary be a server in a pod: it answers each connection and each datagram to port 8080 with its host's name and the client's address.
// With the arguments ask PROTOCOL ADDRESS it is a client, which prints the answer, and with wait it does nothing.
const echoEnv = "MONOPOD_TEST_ECHO"

func beEcho(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if len(args) == 3 {
		answer, err := askEcho(args[1], args[2])
		fmt.Println(answer)
		return err
	}
	if len(args) == 1 {
		<-ctx.Done()
		return nil
	}
	me, err := os.Hostname()
	if err != nil {
		return err
	}
	from := func(a net.Addr) string { return netip.MustParseAddrPort(a.String()).Addr().Unmap().String() }
	l, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", ":8080")
	if err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 1500)
		for {
			if _, a, err := p.ReadFrom(buf); err == nil {
				_, _ = p.WriteTo([]byte(me+" "+from(a)+"\n"), a)
			}
		}
	}()
	go func() {
		<-ctx.Done()
		l.Close()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		fmt.Fprintln(c, me, from(c.RemoteAddr()))
		c.Close()
	}
}

// askEcho is what such a server answers; of env, what a variable says, and of dns, which addresses a name has.
func askEcho(protocol, address string) (string, error) {
	switch protocol {
	case "env":
		return os.Getenv(address), nil
	case "dns":
		all, err := net.LookupHost(address)
		return strings.Join(all, " "), err
	}
	c, err := net.DialTimeout(protocol, address, 3*time.Second*harness.SlowFactor())
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(3 * time.Second * harness.SlowFactor())); err != nil {
		return "", err
	}
	if protocol == "tcp" {
		raw, err := io.ReadAll(c)
		return strings.TrimSpace(string(raw)), err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return "", err
	}
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	return strings.TrimSpace(string(buf[:n])), err
}

// serviceNode is a node whose services have a range of their own.
type serviceNode struct {
	*harness.Node
	t *testing.T
}

func startServiceNode(t *testing.T) *serviceNode {
	t.Helper()
	n := &serviceNode{t: t}
	n.Node = harness.NewNode(t, harness.Options{})
	pods := netip.MustParsePrefix(n.PodCIDR).Addr().As4()
	pods[1] += 8 // beside the ranges of the tests' pods
	n.Start("--service-cidr", netip.PrefixFrom(netip.AddrFrom4(pods), 24).String())
	return n
}

func (n *serviceNode) again() {
	n.t.Helper()
	pods := netip.MustParsePrefix(n.PodCIDR).Addr().As4()
	pods[1] += 8
	n.Start("--service-cidr", netip.PrefixFrom(netip.AddrFrom4(pods), 24).String())
}

func (n *serviceNode) get(what, path string) string {
	n.t.Helper()
	return n.Kubectl("get", what, "-o", "jsonpath={"+path+"}")
}

// from asks in a pod.
func (n *serviceNode) from(pod, protocol, address, port string) string {
	n.t.Helper()
	out, err := n.TryKubectl("", "exec", pod, "--", "/program", "ask", protocol, net.JoinHostPort(address, port))
	if err != nil {
		return "error: " + err.Error()
	}
	return strings.TrimSpace(out)
}

// host asks from the machine itself.
func (n *serviceNode) host(protocol, address, port string) string {
	n.t.Helper()
	answer, err := askEcho(protocol, net.JoinHostPort(address, port))
	if err != nil {
		return "error: " + err.Error()
	}
	return answer
}

// TestServices: services of a real node are reached from pods, from pods on the host's network and from the machine, and go on being so whatever becomes of
// monopod and of its rules.
func TestServices(t *testing.T) {
	n := startServiceNode(t)
	const image = "localhost/test/echo:1"
	n.LoadImage(harness.Archive(t, image, thisProgram))
	for _, name := range []string{"one", "two"} {
		n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "labels": {"app": "echo"}}, "spec": {"terminationGracePeriodSeconds": 1,
			"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "env": [{"name": %q, "value": "true"}]}]}}`, name, image, echoEnv))
	}
	for name, hostNetwork := range map[string]bool{"client": false, "hostclient": true} {
		n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"hostNetwork": %v, "terminationGracePeriodSeconds": 1,
			"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "args": ["wait"], "env": [{"name": %q, "value": "true"}]}]}}`, name, hostNetwork, image, echoEnv))
	}
	n.Kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	ports := `"ports": [{"name": "tcp", "port": 80, "targetPort": 8080}, {"name": "udp", "port": 53, "targetPort": 8080, "protocol": "UDP"}]`
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo"}, "spec": {"type": "NodePort", "selector": {"app": "echo"}, ` + ports + `}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "sticky"}, "spec": {"sessionAffinity": "ClientIP", "selector": {"app": "echo"}, ` + ports + `}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "none"}, "spec": {"selector": {"app": "nobody"}, ` + ports + `}}`)
	vip, sticky, none := n.get("svc/echo", ".spec.clusterIP"), n.get("svc/sticky", ".spec.clusterIP"), n.get("svc/none", ".spec.clusterIP")
	tcpPort, udpPort := n.get("svc/echo", ".spec.ports[0].nodePort"), n.get("svc/echo", ".spec.ports[1].nodePort")
	clientIP := n.get("pod/client", ".status.podIP")
	gateway := netip.MustParsePrefix(n.PodCIDR).Addr().Next().String()
	whole := func(when string) {
		t.Helper()
		for _, c := range []struct {
			name string
			ask  func() string
			as   string
		}{
			{"a pod, TCP", func() string { return n.from("client", "tcp", vip, "80") }, clientIP},
			{"a pod, UDP", func() string { return n.from("client", "udp", vip, "53") }, clientIP},
			{"a pod on the host's network, TCP", func() string { return n.from("hostclient", "tcp", vip, "80") }, ""},
			{"the machine, TCP", func() string { return n.host("tcp", vip, "80") }, ""},
			{"the machine, UDP", func() string { return n.host("udp", vip, "53") }, ""},
			{"the machine, its port", func() string { return n.host("tcp", "127.0.0.1", tcpPort) }, gateway},
			{"the machine, its port, UDP", func() string { return n.host("udp", gateway, udpPort) }, gateway},
			{"a pod, the machine's port", func() string { return n.from("client", "tcp", gateway, tcpPort) }, clientIP},
			{"a pod on the host's network, the machine's port", func() string { return n.from("hostclient", "tcp", gateway, tcpPort) }, gateway},
		} {
			harness.Eventually(t, when+": from "+c.name, func() (bool, string) {
				got := strings.Fields(c.ask())
				return len(got) == 2 && (got[0] == "one" || got[0] == "two") && (c.as == "" || got[1] == c.as), fmt.Sprint(got)
			})
		}
	}
	whole("at first")
	// Pods reach the API at the address of the service kubernetes.
	api := n.get("svc/kubernetes", ".spec.clusterIP")
	if out := n.Kubectl("exec", "client", "--", "/program", "ask", "env", "KUBERNETES_SERVICE_HOST"); strings.TrimSpace(out) != api {
		t.Errorf("KUBERNETES_SERVICE_HOST is %s, not %s", out, api)
	}
	first := strings.Fields(n.from("client", "tcp", sticky, "80"))[0]
	for range 8 {
		if got := strings.Fields(n.from("client", "tcp", sticky, "80"))[0]; got != first {
			t.Errorf("with affinity to %s: %s", first, got)
		}
	}
	if got := n.from("client", "tcp", none, "80"); !strings.Contains(got, "refused") {
		t.Errorf("without endpoints: %q", got)
	}
	// A pod that reaches itself.
	n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "self", "labels": {"app": "self"}}, "spec": {"terminationGracePeriodSeconds": 1,
		"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "env": [{"name": %q, "value": "true"}]}]}}`, image, echoEnv))
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "self"}, "spec": {"selector": {"app": "self"}, ` + ports + `}}`)
	n.Kubectl("wait", "--for=condition=Ready", "pod/self", "--timeout=60s")
	self, selfIP := n.get("svc/self", ".spec.clusterIP"), n.get("pod/self", ".status.podIP")
	harness.Eventually(t, "a pod reaches itself", func() (bool, string) {
		got := n.from("self", "tcp", self, "80")
		return strings.HasPrefix(got, "self ") && got != "self "+selfIP, got // by an address of the host
	})

	n.Kill()
	if got := n.host("tcp", vip, "80"); strings.HasPrefix(got, "error") {
		t.Errorf("without monopod: %s", got)
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	n.again()
	whole("after kill -9 and a start")
	flush := func() {
		t.Helper()
		conn.DelTable(&nftables.Table{Name: n.Bridge + "-services", Family: nftables.TableFamilyINet})
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	whole("after somebody has deleted the table")
	n.Stop()
	flush()
	n.again()
	whole("after it was deleted while monopod was away")
	n.Kubectl("delete", "pod", "one", "two", "--now")
	harness.Eventually(t, "without endpoints it is refused", func() (bool, string) {
		got := n.host("tcp", vip, "80")
		return strings.Contains(got, "refused"), got
	})
}
