package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/harness"
)

// outsideNode is a node of both families with another machine beside it: a network namespace at the other end of a link.
type outsideNode struct {
	*serviceNode
	// at are the node's addresses on that link, by family, other are the other machine's.
	at, other map[string]netip.Addr
	netns     string
	// link is the name of the node's end of the link.
	link string
	// args are those of each start.
	args []string
}

const v4, v6 = harness.IPv4, harness.IPv6

func bothFamilies() []string { return []string{v4, v6} }

func startOutsideNode(t *testing.T) *outsideNode {
	t.Helper()
	n := &outsideNode{serviceNode: &serviceNode{t: t}}
	n.Node = harness.NewNode(t, harness.Options{})
	beside := harness.NewNeighbour(t, n.Node)
	n.at, n.other, n.netns, n.link = beside.Node, beside.Own, beside.NetNS, beside.Link
	// All its ranges follow from that of its pods, which nobody else has.
	pods := netip.MustParsePrefix(n.PodCIDR).Addr().As4()
	six := func(kind byte) netip.Addr {
		return netip.AddrFrom16([16]byte{0xfd, 0x6d, 0x70, kind, pods[1], pods[2]})
	}
	n.args = []string{"--pod-cidr", "", "--pod-cidrs", n.PodCIDR + "," + netip.PrefixFrom(six(1), 64).String(),
		"--service-cidr", n.ServiceCIDR + "," + netip.PrefixFrom(six(2), 112).String(), "--node-ip", n.at[v4].String() + "," + n.at[v6].String(),
		"--agent-address", n.at[v4].String()}
	n.Start(n.args...)
	return n
}

// outside asks from the other machine.
func (n *outsideNode) outside(protocol, address, port string) (answer string) {
	n.t.Helper()
	err := harness.InNetNS(n.netns, func() (err error) {
		answer, err = askEcho(protocol, net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return "error: " + err.Error()
	}
	return answer
}

// soon waits until somebody is answered by a pod of the deployment web, who sees him as he is.
func (n *outsideNode) soon(what string, as netip.Addr, ask func() string) {
	n.t.Helper()
	harness.Eventually(n.t, what, func() (bool, string) {
		got := ask()
		fields := strings.Fields(got)
		return len(fields) == 2 && strings.HasPrefix(fields[0], "web-") && fields[1] == as.String(), got
	})
}

// addresses are those of an object by their families.
func (n *outsideNode) addresses(what, path string) map[string]string {
	n.t.Helper()
	all := map[string]string{}
	for _, a := range strings.Fields(n.get(what, path)) {
		if ip := netip.MustParseAddr(a); ip.Is4() {
			all[v4] = a
		} else {
			all[v6] = a
		}
	}
	return all
}

func (n *outsideNode) balancer(name, app string, port int) {
	n.t.Helper()
	n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q}, "spec": {"type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack",
		"selector": {"app": %q}, "ports": [{"port": %d, "targetPort": 8080}]}}`, name, app, port))
}

// isAt waits until a load balancer has these addresses.
func (n *outsideNode) isAt(t *testing.T, name, addresses string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s is at %q", name, addresses), func() (bool, string) {
		got := n.ingress(name)
		return got == addresses, got
	})
}

// refused waits until a load balancer has no address, and a condition of this type says why.
func (n *outsideNode) refused(t *testing.T, name, condition, why string) {
	t.Helper()
	harness.Eventually(t, name+" is told why it has no address", func() (bool, string) {
		got := n.get("svc/"+name, fmt.Sprintf(`.status.conditions[?(@.type==%q)].message`, condition))
		return strings.Contains(got, why) && n.ingress(name) == "", got
	})
}

func (n *outsideNode) ingress(name string) string {
	return n.get("svc/"+name, ".status.loadBalancer.ingress[*].ip")
}

// TestFromOutside: a deployment behind a load balancer is reached from another machine at the node's addresses, and policies hold for whoever comes by a
// service, from wherever.
func TestFromOutside(t *testing.T) {
	n := startOutsideNode(t)
	const image = "localhost/test/echo:1"
	n.LoadImage(harness.Archive(t, image, thisProgram))
	n.Apply(fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
		"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 1,
			"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "env": [{"name": %q, "value": "true"}]}]}}}}`, image, echoEnv))
	for _, name := range []string{"friend", "stranger"} {
		n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "labels": {"role": %q}}, "spec": {"terminationGracePeriodSeconds": 1,
			"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "args": ["wait"], "env": [{"name": %q, "value": "true"}]}]}}`, name, name, image, echoEnv))
	}
	n.balancer("web", "web", 80)
	n.Kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/friend", "pod/stranger", "--timeout=60s")
	t.Run("load balancer", n.testBalancer)
	t.Run("policies", n.testPolicies)
	t.Run("ranges", n.testRanges)
	t.Run("announced", n.testAnnounced)
	n.Reset()
	if left := n.announced(); len(left) > 0 {
		t.Errorf("after a reset the machine has %v", left)
	}
}

// announced are the addresses that the machine has on the link for the sake of load balancers.
func (n *outsideNode) announced() (all []string) {
	n.t.Helper()
	link, err := netlink.LinkByName(n.link)
	if err != nil {
		n.t.Fatal(err)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, a := range addresses {
		if ones, bits := a.Mask.Size(); ones == bits {
			all = append(all, a.IP.String())
		}
	}
	slices.Sort(all)
	return all
}

// startWith starts the node anew with two addresses of each family for load balancers, and returns its arguments.
func (n *outsideNode) startWith(first, second map[string]string) (args []string) {
	n.t.Helper()
	n.Kill()
	args = append(slices.Clone(n.args), "--load-balancer-ranges", fmt.Sprintf("%s/31,%s-%s", first[v4], first[v6], second[v6]))
	n.Start(args...)
	return args
}

// answers waits until a load balancer at these addresses is reached from outside. So it is then from the machine itself and from a pod, and at the other ports nobody is.
func (n *outsideNode) answers(t *testing.T, when string, at map[string]string, others ...string) {
	t.Helper()
	for _, f := range bothFamilies() {
		n.soon(fmt.Sprintf("%s, %s from outside", when, at[f]), n.other[f], func() string { return n.outside("tcp", at[f], "80") })
		for _, port := range others {
			if got := n.outside("tcp", at[f], port); !strings.Contains(got, "refused") {
				t.Errorf("%s, a port of %s that is no service's: %s", when, at[f], got)
			}
		}
		if got, err := askEcho("tcp", net.JoinHostPort(at[f], "80")); err != nil || !strings.HasPrefix(got, "web-") {
			t.Errorf("%s, %s from the machine itself: %s, %v", when, at[f], got, err)
		}
		if got := n.from("stranger", "tcp", at[f], "80"); !strings.HasPrefix(got, "web-") {
			t.Errorf("%s, %s from a pod: %s", when, at[f], got)
		}
	}
}

// testAnnounced: addresses of the network that the machine is in are found there without a router, and there is nothing but services at them.
func (n *outsideNode) testAnnounced(t *testing.T) {
	at := func(i byte) map[string]string {
		four, six := n.at[v4].As4(), n.at[v6].As16()
		four[3], six[15] = 200+i, 200+i
		return map[string]string{v4: netip.AddrFrom4(four).String(), v6: netip.AddrFrom16(six).String()}
	}
	both := func(i byte) string { return at(i)[v4] + " " + at(i)[v6] }
	args := n.startWith(at(0), at(1))
	// A program of the machine that listens everywhere.
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, listened, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cluster := n.get("svc/kubernetes", ".spec.clusterIP")
	answer := func(when string, i byte) {
		t.Helper()
		n.answers(t, when, at(i), "81", listened)
	}
	told := func(reason string, addresses ...string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("an event %s of %s", reason, addresses), func() (bool, string) {
			got := n.Kubectl("get", "events", "--field-selector", "involvedObject.kind=Service,reason="+reason, "-o", "jsonpath={.items[*].message}")
			return !slices.ContainsFunc(addresses, func(a string) bool { return !strings.Contains(got, " "+a+" on "+n.link) }), got
		})
	}
	n.balancer("first", "web", 80)
	n.isAt(t, "first", both(0))
	answer("the first", 0)
	told("AddressAnnounced", at(0)[v4], at(0)[v6])
	// While monopod dies, is away and comes back the service answers, and nobody else does.
	stop, asked := make(chan struct{}), sync.WaitGroup{}
	for _, f := range bothFamilies() {
		asked.Go(func() {
			for count := 0; ; count++ {
				if got := n.outside("tcp", at(0)[f], "80"); strings.HasPrefix(got, "error") {
					t.Errorf("%s, around a kill -9: %s", f, got)
				}
				if got := n.outside("tcp", at(0)[f], listened); !strings.Contains(got, "refused") {
					t.Errorf("%s, a port of the machine's around a kill -9: %s", f, got)
				}
				select {
				case <-stop:
					t.Logf("%s: asked %d times", f, count)
					return
				default:
				}
			}
		})
	}
	for range 2 {
		n.Kill()
		n.Start(args...)
	}
	close(stop)
	asked.Wait()
	answer("after kill -9", 0)
	// The node's own addresses are what they were, and the API is where it was.
	if got := n.addresses("node/"+n.Name, `.status.addresses[?(@.type=="InternalIP")].address`); got[v4] != n.at[v4].String() || got[v6] != n.at[v6].String() {
		t.Errorf("the node's addresses are %v", got)
	}
	if now := n.get("svc/kubernetes", ".spec.clusterIP"); now != cluster {
		t.Errorf("the API is at %s, and was at %s", now, cluster)
	}
	// Another machine has the next one.
	others := func(change func(netlink.Link, *netlink.Addr) error) {
		t.Helper()
		err := harness.InNetNS(n.netns, func() error {
			link, err := netlink.LinkByName("eth0")
			for _, a := range at(1) {
				ip := netip.MustParseAddr(a)
				addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}}
				if ip.Is6() {
					addr.Flags = unix.IFA_F_NODAD // it has had it for long
				}
				if err == nil {
					err = change(link, addr)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	others(netlink.AddrAdd)
	n.balancer("second", "web", 80)
	n.isAt(t, "second", both(1))
	told("AddressConflict", at(1)[v4], at(1)[v6])
	others(netlink.AddrDel)
	answer("when it is free", 1)
	n.Kubectl("delete", "svc", "first", "second")
	harness.Eventually(t, "the machine gives the addresses up", func() (bool, string) {
		left := n.announced()
		return len(left) == 0, fmt.Sprint(left)
	})
	n.balancer("first", "web", 80)
	answer("once more", 0)
}

// testRanges: load balancers have addresses of their own, of ranges that a router leads to the node: here the other machine does.
func (n *outsideNode) testRanges(t *testing.T) {
	pods := netip.MustParsePrefix(n.PodCIDR).Addr().As4()
	at := func(i byte) map[string]string { // behind the ranges of links, which follow from that of the pods as well
		return map[string]string{
			v4: netip.AddrFrom4([4]byte{10, pods[1] + 24, pods[2], i}).String(),
			v6: netip.AddrFrom16([16]byte{0xfd, 0x6d, 0x70, 4, pods[1], pods[2], 15: i}).String(),
		}
	}
	both := func(i byte) string { return at(i)[v4] + " " + at(i)[v6] }
	args := n.startWith(at(0), at(1))
	err := harness.InNetNS(n.netns, func() error {
		for f, first := range at(0) {
			gateway := n.at[f]
			to := netip.PrefixFrom(netip.MustParseAddr(first), gateway.BitLen()-1)
			if err := netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), gateway.BitLen())}, Gw: gateway.AsSlice()}); err != nil {
				return fmt.Errorf("a route to %s: %w", to, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(when string, i byte) {
		t.Helper()
		n.answers(t, when, at(i), "81")
	}
	n.balancer("first", "web", 80)
	n.isAt(t, "first", both(0))
	n.balancer("second", "web", 80)
	n.isAt(t, "second", both(1))
	answer("one of two", 0)
	answer("the other one", 1)
	n.balancer("third", "web", 80)
	n.refused(t, "third", "LoadBalancerAddressError", "all IPv4 addresses of the ranges")
	n.Kubectl("patch", "svc", "third", "-p", fmt.Sprintf(`{"spec": {"loadBalancerIP": %q}}`, at(1)[v4]))
	n.refused(t, "third", "LoadBalancerAddressError", "loadBalancerIP "+at(1)[v4]+" is in use: by service default/second")
	n.Kill()
	for _, f := range bothFamilies() {
		if got := n.outside("tcp", at(1)[f], "80"); strings.HasPrefix(got, "error") {
			t.Errorf("%s, without monopod: %s", f, got)
		}
	}
	n.Start(args...)
	n.Kubectl("delete", "svc", "second")
	n.isAt(t, "third", both(1))
	answer("the heir", 1)
	// Without ranges it is the node's addresses again, of which one service has the port.
	n.Kubectl("delete", "svc", "first")
	n.Kill()
	n.Start(n.args...)
	n.isAt(t, "third", n.at[v4].String()+" "+n.at[v6].String())
	n.Kubectl("delete", "svc", "third")
}

func (n *outsideNode) testBalancer(t *testing.T) {
	both := n.at[v4].String() + " " + n.at[v6].String()
	n.isAt(t, "web", both)
	for _, family := range bothFamilies() {
		n.soon(family+" from outside", n.other[family], func() string { return n.outside("tcp", n.at[family].String(), "80") })
	}
	// Another service's port, and one that a process of the machine listens at.
	l, err := net.Listen("tcp", net.JoinHostPort(n.at[v4].String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	n.balancer("second", "web", 80)
	n.balancer("listened", "web", port)
	n.refused(t, "second", "LoadBalancerPortsError", "port 80/TCP of the nodes is in use: by service default/web")
	n.refused(t, "listened", "LoadBalancerPortsError", fmt.Sprintf("port %d/TCP of the nodes is in use: by ", port))
	n.Kill()
	for _, family := range bothFamilies() {
		if got := n.outside("tcp", n.at[family].String(), "80"); strings.HasPrefix(got, "error") {
			t.Errorf("%s, without monopod: %s", family, got)
		}
	}
	n.Start(n.args...)
	l.Close()
	n.Kubectl("delete", "svc", "web")
	n.isAt(t, "second", both)
	n.isAt(t, "listened", both)
	n.soon("the heir of the port, from outside", n.other[v4], func() string { return n.outside("tcp", n.at[v4].String(), "80") })
	n.soon("the port that was free again, from outside", n.other[v6], func() string { return n.outside("tcp", n.at[v6].String(), fmt.Sprint(port)) })
	n.Kubectl("delete", "svc", "second", "listened")
}

func (n *outsideNode) testPolicies(t *testing.T) {
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "in"}, "spec": {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack",
		"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}`)
	cluster, nodePort := n.addresses("svc/in", ".spec.clusterIPs[*]"), n.get("svc/in", ".spec.ports[0].nodePort")
	friend := n.addresses("pod/friend", ".status.podIPs[*].ip")
	stranger := n.addresses("pod/stranger", ".status.podIPs[*].ip")
	policy := func(name, spec string) {
		t.Helper()
		n.Apply(fmt.Sprintf(`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": %q}, "spec": %s}`, name, spec))
	}
	// each says who is answered, by the service's address and by the node's port; the others are not.
	each := func(when string, friends, strangers, outside bool) {
		t.Helper()
		type asked struct {
			who  string
			as   string
			want bool
			ask  func() string
		}
		var all []asked
		for _, f := range bothFamilies() {
			for _, to := range []struct{ address, port string }{{cluster[f], "80"}, {n.at[f].String(), nodePort}} {
				all = append(all,
					asked{"friend", friend[f], friends, func() string { return n.from("friend", "tcp", to.address, to.port) }},
					asked{"stranger", stranger[f], strangers, func() string { return n.from("stranger", "tcp", to.address, to.port) }})
			}
			all = append(all, asked{"outside", n.other[f].String(), outside, func() string { return n.outside("tcp", n.at[f].String(), nodePort) }})
		}
		harness.Eventually(t, when, func() (bool, string) {
			wrong := make([]string, len(all))
			var asking sync.WaitGroup // who is not answered waits
			for i, a := range all {
				asking.Go(func() {
					got := a.ask()
					fields := strings.Fields(got)
					if a.want && (len(fields) != 2 || !strings.HasPrefix(fields[0], "web-") || fields[1] != a.as) || !a.want && !strings.HasPrefix(got, "error") {
						wrong[i] = fmt.Sprintf("%s (%s, answered: %v): %s", a.who, a.as, a.want, got)
					}
				})
			}
			asking.Wait()
			seen := strings.TrimSpace(strings.Join(wrong, "\n"))
			return seen == "", seen
		})
	}
	each("without policies", true, true, true)
	policy("in", `{"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}], "ports": [{"port": 8080}]}]}`)
	each("pods by their labels", true, false, false)
	// The port is the pod's, and not the service's.
	policy("in", `{"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}], "ports": [{"port": 80}]}]}`)
	each("another port", false, false, false)
	policy("in", fmt.Sprintf(`{"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"ipBlock": {"cidr": "%s/32"}}, {"ipBlock": {"cidr": "%s/128"}}]}]}`, n.other[v4], n.other[v6]))
	each("another machine by its address", false, false, true)
	n.Kill()
	n.Start(n.args...)
	each("after kill -9", false, false, true)
	n.Kubectl("delete", "netpol", "in")

	// What a pod sends to a service is for who is behind it.
	policy("out", `{"podSelector": {"matchLabels": {"role": "friend"}}, "policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": 8080}]}]}`)
	each("egress to who is behind a service", true, true, true)
	policy("out", fmt.Sprintf(`{"podSelector": {"matchLabels": {"role": "friend"}}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "%s/32"}}, {"ipBlock": {"cidr": "%s/128"}}]}]}`, cluster[v4], cluster[v6]))
	each("egress to the service's own address", false, true, true)
	// Names are answered by the node itself, which a pod always reaches.
	policy("out", `{"podSelector": {"matchLabels": {"role": "friend"}}, "policyTypes": ["Egress"]}`)
	each("no egress at all", false, true, true)
	if got := strings.Fields(n.Kubectl("exec", "friend", "--", "/program", "ask", "dns", "in.default.svc.cluster.local")); !slices.Contains(got, cluster[v4]) || !slices.Contains(got, cluster[v6]) {
		t.Errorf("the service's name is %q, want %v", got, cluster)
	}
}
