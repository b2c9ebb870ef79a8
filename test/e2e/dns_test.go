package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// outsideAddress is the answer of outsideServer.
const outsideAddress = "192.0.2.77"

// outsideServer is a name server that knows www.example.com, and nothing else.
func outsideServer(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
			switch {
			case !strings.EqualFold(q.Name.String(), "www.example.com."):
				reply.RCode = dnsmessage.RCodeNameError
			case q.Type == dnsmessage.TypeA:
				reply.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
					Body: &dnsmessage.AResource{A: netip.MustParseAddr(outsideAddress).As4()}}}
			}
			if raw, err := reply.Pack(); err == nil {
				_, _ = conn.WriteToUDPAddrPort(raw, from)
			}
		}
	})
	t.Cleanup(func() {
		conn.Close()
		running.Wait()
	})
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// TestDNS: pods resolve services, pods of headless services, aliases and the names of others, and so does the machine when it is to.
func TestDNS(t *testing.T) {
	n := harness.StartNode(t, harness.Options{Args: []string{"--dns-upstreams", outsideServer(t).String()}})
	const image = "localhost/test/busybox:1"
	n.LoadImage(harness.Archive(t, image, images.Busybox))
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "set"}, "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "away"}, "spec": {"type": "ExternalName", "externalName": "www.example.com"}}`)
	for name, more := range map[string]string{"web": `"hostname": "zero", "subdomain": "set",`, "client": ""} {
		n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "labels": {"app": %q}}, "spec": {%s "terminationGracePeriodSeconds": 1,
			"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "command": ["sh", "-c", "trap exit TERM; while :; do sleep 1; done"]}]}}`, name, name, more, image))
	}
	n.Kubectl("wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=60s")
	field := func(what, path string) string { return n.Kubectl("get", what, "-o", "jsonpath={"+path+"}") }
	clusterIP, podIP := field("service/web", ".spec.clusterIP"), field("pod/web", ".status.podIP")
	// resolves: the pod learns of an address by a name.
	resolves := func(name, want string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("in a pod %s is %s", name, want), func() (bool, string) {
			// It asks in all domains of the search, and fails when one of them does not know.
			out, err := n.TryKubectl("", "exec", "client", "--", "nslookup", name)
			return slices.Contains(strings.Fields(out), want), fmt.Sprint(out, err)
		})
	}
	resolves("web", clusterIP)
	resolves("web.default.svc.cluster.local", clusterIP)
	resolves("kubernetes.default.svc.cluster.local", field("service/kubernetes", ".spec.clusterIP"))
	resolves("set", podIP)
	resolves("zero.set.default.svc.cluster.local", podIP)
	resolves(strings.ReplaceAll(podIP, ".", "-")+".default.pod.cluster.local", podIP)
	resolves("away", outsideAddress)
	resolves("www.example.com", outsideAddress)
	resolves(clusterIP, "web.default.svc.cluster.local")
	if out, err := n.TryKubectl("", "exec", "client", "--", "nslookup", "nobody.default.svc.cluster.local"); err == nil {
		t.Errorf("a name that nobody has: %s", out)
	}
	if events := n.Kubectl("get", "events", "-A"); strings.Contains(events, "MissingClusterDNS") {
		t.Errorf("events:\n%s", events)
	}
	onTheMachine(t, n, clusterIP)

	// A pod that asks while the node is away hears of it at once, and is answered by the next process.
	n.Kill()
	n.Start()
	resolves("web", clusterIP)
}

// onTheMachine has the names resolve for programs that see a resolv.conf of their own, in the way of the command.
func onTheMachine(t *testing.T, n *harness.Node, clusterIP string) {
	t.Helper()
	dir := t.TempDir()
	conf, data := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "data")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	// The running node, whose data directory is another one, sees the machine's file.
	script := strings.NewReplacer("CONF", conf, "MONOPOD", harness.Bin(t, "monopod"),
		"FLAGS", strings.Join([]string{"--data-dir", data, "--bridge", n.Bridge, "--service-cidr", n.ServiceCIDR}, " ")).Replace(`
		mount --bind CONF /etc/resolv.conf && MONOPOD dns enable FLAGS && MONOPOD dns enable FLAGS && MONOPOD dns status FLAGS &&
		getent ahostsv4 web.default.svc.cluster.local && MONOPOD dns disable FLAGS && cat /etc/resolv.conf`)
	out, err := exec.Command("unshare", "--mount", "sh", "-c", script).CombinedOutput()
	text := string(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{"resolve now on this machine, by resolv.conf", "resolve already", "answers for cluster.local, version 1.1.0", "MACHINE  enabled", "\n" + clusterIP, "resolve on this machine no more"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if !strings.HasSuffix(text, ")\nnameserver 127.0.0.1\n") || t.Failed() {
		t.Errorf("the machine:\n%s", text)
	}
}

// TestDNSIsTaken: a second node with the same range of services runs without a DNS of its own, says so, and leaves the first one's alone.
func TestDNSIsTaken(t *testing.T) {
	first := harness.StartNode(t, harness.Options{})
	second := harness.StartNode(t, harness.Options{Args: []string{"--service-cidr", first.ServiceCIDR}})
	status := func(n *harness.Node) string {
		return n.Monopod("status", "--admin-socket", filepath.Join(n.Dir, "run", "admin.sock"))
	}
	if s := status(second); !strings.Contains(s, "PROBLEMS    dns: the cluster's DNS cannot listen at") || strings.Contains(s, "            dns ") {
		t.Errorf("the second says:\n%s", s)
	}
	if s := status(first); strings.Contains(s, "PROBLEMS    dns") || !strings.Contains(s, "            dns         ready") {
		t.Errorf("the first says:\n%s", s)
	}
	if out, err := second.TryKubectl("", "get", "service", "-n", "kube-system", "kube-dns"); err == nil {
		t.Errorf("the second has a service: %s", out)
	}
}
