package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
)

// talker is a pod whose network namespace the test works in.
type talker struct {
	n              *harness.Node
	t              *testing.T
	namespace, pod string
	ip             netip.Addr
	netns          string
}

// talk makes a pod of a namespace that sleeps, and finds its network namespace.
func talk(t *testing.T, n *harness.Node, namespace, name, labels, script string) *talker {
	t.Helper()
	return talkOn(t, n, n, namespace, name, labels, script)
}

// talkOn is talk for a pod of a runtime that is another process.
func talkOn(t *testing.T, n, rt *harness.Node, namespace, name, labels, script string) *talker {
	t.Helper()
	if script == "" {
		script = "exec sleep 1d"
	}
	n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "namespace": %q, "labels": {%s}}, "spec": {
		"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": %q, "command": ["sh", "-c", %q], "ports": [{"name": "http", "containerPort": 80}]}]}}`,
		name, namespace, labels, busybox, script))
	n.Kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	ip := netip.MustParseAddr(n.Kubectl("-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.podIP}"))
	return &talker{n: n, t: t, namespace: namespace, pod: name, ip: ip, netns: rt.PodNetNS(ip)}
}

func (p *talker) in(f func() error) {
	p.t.Helper()
	if err := harness.InNetNS(p.netns, f); err != nil {
		p.t.Fatal(err)
	}
}

// serve answers each connection to a port.
func (p *talker) serve(port int) {
	p.t.Helper()
	var l net.Listener
	p.in(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprint(":", port))
		return err
	})
	harness.EchoAddress(p.t, l)
}

// dial says whether a connection is answered.
func (p *talker) dial(to netip.AddrPort, limit time.Duration) (ok bool) {
	p.t.Helper()
	p.in(func() error {
		ok = answered(to, limit)
		return nil
	})
	return ok
}

// heard is how many datagrams have reached the pod's network namespace since it was made, whether somebody listened or not.
func (p *talker) heard() (all int) {
	p.t.Helper()
	p.in(func() error {
		raw, err := os.ReadFile("/proc/thread-self/net/snmp")
		var names []string
		for line := range strings.Lines(string(raw)) {
			fields := strings.Fields(line)
			if fields[0] != "Udp:" {
				continue
			}
			if names == nil {
				names = fields
				continue
			}
			for i, name := range names {
				if name == "InDatagrams" || name == "NoPorts" {
					count, err := strconv.Atoi(fields[i])
					if err != nil {
						return err
					}
					all += count
				}
			}
		}
		return err
	})
	return all
}

func answered(to netip.AddrPort, limit time.Duration) bool {
	end := time.Now().Add(limit)
	c, err := (&net.Dialer{Deadline: end}).Dial("tcp", to.String())
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(end)
	n, _ := c.Read(make([]byte, 64))
	return n > 0
}

// soon waits until a connection is answered, or is not any more: a policy holds a moment after it was written.
func (p *talker) soon(to *talker, port uint16, want bool) {
	p.t.Helper()
	harness.Eventually(p.t, fmt.Sprintf("%s reaches %s:%d is %v", p.pod, to.pod, port, want), func() (bool, string) {
		return p.dial(netip.AddrPortFrom(to.ip, port), 300*time.Millisecond*harness.SlowFactor()) == want, ""
	})
}

func policyJSON(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": %q, "namespace": "shop"}, "spec": %s}`, name, spec)
}

// TestNetworkPolicies is a real node with real pods.
func TestNetworkPolicies(t *testing.T) {
	n := workload(t)
	for _, ns := range []string{"shop", "watch"} {
		n.Kubectl("create", "namespace", ns)
	}
	n.Kubectl("label", "namespace", "watch", "team=b")
	web, db := talk(t, n, "shop", "web", `"app": "web"`, ""), talk(t, n, "shop", "db", `"app": "db"`, "")
	probe := talk(t, n, "watch", "probe", `"app": "probe"`, "")
	for _, p := range []*talker{web, db, probe} {
		p.serve(80)
		p.serve(81)
	}
	probe.soon(web, 80, true)

	n.Apply(policyJSON("deny", `{"podSelector": {}}`))
	probe.soon(web, 80, false)
	db.soon(web, 80, false)
	web.soon(probe, 80, true)
	web.soon(web, 80, true)
	if !answered(netip.AddrPortFrom(web.ip, 80), time.Minute) {
		t.Error("the node does not reach its own pod")
	}
	if out := n.Kubectl("-n", "shop", "get", "netpol"); !strings.Contains(out, "deny") || !strings.Contains(out, "POD-SELECTOR") {
		t.Errorf("kubectl get netpol:\n%s", out)
	}

	n.Apply(policyJSON("allow", `{"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}], "ports": [{"port": "http"}]}]}`))
	probe.soon(web, 80, true)
	probe.soon(web, 81, false)
	db.soon(web, 80, false)
	if out := n.Kubectl("-n", "shop", "describe", "netpol", "allow"); !strings.Contains(out, "NamespaceSelector: team=b") {
		t.Errorf("kubectl describe netpol:\n%s", out)
	}
	n.Kubectl("label", "namespace", "watch", "team-")
	probe.soon(web, 80, false)
	n.Kubectl("-n", "shop", "label", "pod", "db", "role=client")
	n.Apply(policyJSON("allow", `{"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "client"}}}]}]}`))
	db.soon(web, 81, true)
	n.Kubectl("-n", "shop", "label", "pod", "db", "role-")
	db.soon(web, 81, false)

	n.Apply(policyJSON("egress", fmt.Sprintf(`{"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["%s/32"]}}]}]}`, probe.ip)))
	db.soon(probe, 80, false)
	n.Apply(policyJSON("egress", fmt.Sprintf(`{"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "%s/32"}}]}]}`, probe.ip)))
	db.soon(probe, 80, true)

	t.Run("nothing passes meanwhile", func(t *testing.T) { testNothingPasses(t, n, web, probe) })

	n.Kubectl("-n", "shop", "delete", "netpol", "--all")
	probe.soon(web, 81, true)
	db.soon(web, 81, true)
}

// testNothingPasses sends to an isolated pod all the time, while the node is killed and started, policies change, pods come and one of them sends as soon as
// it can: none of that arrives.
func testNothingPasses(t *testing.T, n *harness.Node, web, probe *talker) {
	var heard atomic.Int64
	var c net.PacketConn
	web.in(func() (err error) {
		c, err = net.ListenPacket("udp", ":9")
		return err
	})
	defer c.Close()
	go func() {
		for buf := make([]byte, 10); ; heard.Add(1) {
			if _, _, err := c.ReadFrom(buf); err != nil {
				return
			}
		}
	}()
	// Not only to the pod that is there: each address of its neighbourhood may become a pod's.
	ctx, stop := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	var rounds atomic.Int64
	for i, a := 0, web.ip; i < 24; i, a = i+1, a.Next() {
		var s net.Conn // one each: what waits for an address that nobody has holds up no other
		probe.in(func() (err error) {
			s, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
			return err
		})
		defer s.Close()
		senders.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
				_ = s.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = s.Write([]byte("x"))
				if a == web.ip {
					rounds.Add(1)
				}
			}
		})
	}
	defer senders.Wait()
	defer stop()
	more := func() {
		t.Helper()
		before := rounds.Load()
		harness.Eventually(t, "packets are sent", func() (bool, string) { return rounds.Load() > before+50, "" })
	}
	more()
	for i := range 5 {
		n.Apply(policyJSON("allow", fmt.Sprintf(`{"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": %d}]}]}`, 1000+i)))
	}
	more()
	n.Kill()
	more()
	n.Start()
	more()
	// One that is isolated in both directions: it hears nothing, and what it sends at once arrives nowhere.
	n.Apply(policyJSON("late", `{"podSelector": {"matchLabels": {"app": "late"}}, "policyTypes": ["Ingress", "Egress"]}`))
	ask := fmt.Sprintf("for i in 1 2 3 4 5; do echo x | nc -w 1 %s 10; done; exec sleep 1d", probe.ip)
	var leaked sync.Map // by the address that it came from
	var d net.Listener
	probe.in(func() (err error) {
		d, err = net.Listen("tcp", ":10")
		return err
	})
	defer d.Close()
	go func() {
		for {
			c, err := d.Accept()
			if err != nil {
				return
			}
			leaked.Store(c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), true)
			c.Close()
		}
	}()
	late := talk(t, n, "shop", "late", `"app": "late"`, ask)
	// The same pod where no policy is about it shows that both would be seen.
	control := talk(t, n, "watch", "control", `"app": "late"`, ask)
	harness.Eventually(t, "the pod that is not isolated hears, and is heard", func() (bool, string) {
		_, left := leaked.Load(control.ip)
		got := control.heard()
		return left && got > 0, fmt.Sprint(left, got)
	})
	more()
	if got := late.heard(); got != 0 {
		t.Errorf("a pod that was isolated from its start has got %d packets", got)
	}
	stop()
	if got := heard.Load(); got != 0 {
		t.Errorf("%d packets have reached an isolated pod", got)
	}
	if _, left := leaked.Load(late.ip); left {
		t.Error("a packet has left a pod that was isolated from its start")
	}
	n.Kubectl("-n", "shop", "delete", "pod", "late", "--wait=false")
	n.Kubectl("-n", "watch", "delete", "pod", "control", "--wait=false")
}
