package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/proxy/plan"
	"monopod.dev/monopod/test/apitest"
	"monopod.dev/monopod/test/harness"
)

// testNode is a network namespace with the role in it, beside an API server of the test's own.
type testNode struct {
	*testing.T
	api  *apitest.API
	path string

	kube      kubernetes.Interface // the role's
	dir       string               // of what outlives the role
	balancers []iprange.Range
	listens   func(corev1.Protocol, int32) string
}

var testNetworks = podnet.Networks{{Name: "mpr0"}}

// newNode makes the node; two servers answer at its addresses with what they are called.
func newNode(t *testing.T) *testNode {
	n := &testNode{T: t, api: apitest.Start(t), path: filepath.Join(t.TempDir(), "net")}
	n.kube = n.api.Client
	harness.PinNetNS(t, n.path)
	n.in(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "d0"
			err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
		}
		if err != nil {
			return err
		}
		d, err := netlink.LinkByName("d0")
		for _, a := range []string{"192.0.2.1/24", "192.0.2.2/24"} {
			if err == nil {
				var addr *netlink.Addr
				if addr, err = netlink.ParseAddr(a); err == nil {
					err = netlink.AddrAdd(d, addr)
				}
			}
		}
		if err == nil {
			err = netlink.LinkSetUp(d)
		}
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: d.Attrs().Index, Gw: net.ParseIP("192.0.2.9")})
		}
		return err
	})
	for _, at := range []string{"192.0.2.1:8080", "192.0.2.2:8080"} {
		var l net.Listener
		n.in(func() (err error) { l, err = net.Listen("tcp", at); return err })
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, at)
				c.Close()
			}
		}()
	}
	return n
}

func (n *testNode) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *testNode) in(f func() error) {
	n.Helper()
	n.must(harness.InNetNS(n.path, f))
}

// run runs the role until the returned function is called.
func (n *testNode) run() (stop func()) {
	n.Helper()
	ctx, cancel := context.WithCancel(n.Context())
	p := New(Config{Kube: n.kube, NodeName: "n", Networks: testNetworks, Dir: n.dir, Balancers: n.balancers, Listens: n.listens, Log: slog.New(slog.NewTextHandler(n.Output(), nil))})
	ended := make(chan error, 1)
	go func() { ended <- harness.InNetNS(n.path, func() error { return p.Run(ctx) }) }()
	<-p.Ready()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			n.must(<-ended)
		}
	}
	n.Cleanup(stop)
	return stop
}

// ask is who answers; empty: nobody.
func (n *testNode) ask(to string) (answer string) {
	n.Helper()
	n.in(func() error {
		c, err := net.DialTimeout("tcp", to, time.Second)
		if err != nil {
			return nil
		}
		defer c.Close()
		raw, _ := io.ReadAll(c)
		answer = string(raw)
		return nil
	})
	return answer
}

func (n *testNode) service(name string, change func(*corev1.Service)) *corev1.Service {
	n.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	if change != nil {
		change(s)
	}
	s, err := n.api.Client.CoreV1().Services("default").Create(n.Context(), s, metav1.CreateOptions{})
	n.must(err)
	return s
}

// ends makes the endpoints of a service: addresses of the node.
func (n *testNode) ends(service string, addresses ...string) {
	n.Helper()
	port, protocol, ready, node, none, free := int32(8080), corev1.ProtocolTCP, true, "n", "", "free"
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &none, Port: &port, Protocol: &protocol}, {Name: &free, Port: &port, Protocol: &protocol}}}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	all := n.api.Client.DiscoveryV1().EndpointSlices("default")
	_, err := all.Update(n.Context(), slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = all.Create(n.Context(), slice, metav1.CreateOptions{})
	}
	n.must(err)
}

// What the API says reaches packets within milliseconds, and goes on working when the role has ended.
func TestChangesReachPackets(t *testing.T) {
	n := newNode(t)
	n.must(harness.InNetNS(n.path, func() error { return Remove(t.Context(), testNetworks, t.TempDir()) })) // where there is nothing
	stop := n.run()
	s := n.service("web", nil)
	to := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), 80).String()
	var took []time.Duration
	for i := range 20 {
		address := fmt.Sprintf("192.0.2.%d", 1+i%2)
		n.ends("web", address)
		begin := time.Now()
		harness.Eventually(t, "packets go to "+address, func() (bool, string) {
			got := n.ask(to)
			return got == address+":8080", got
		})
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("from the API's answer to the first packet: median %v, most %v", took[len(took)/2], took[len(took)-1])
	n.ends("web")
	harness.Eventually(t, "nobody answers", func() (bool, string) { got := n.ask(to); return got == "", got })
	n.ends("web", "192.0.2.1")
	harness.Eventually(t, "somebody answers", func() (bool, string) { got := n.ask(to); return got != "", got })
	stop()
	if got := n.ask(to); got != "192.0.2.1:8080" {
		t.Errorf("after the role has ended: %q", got)
	}
	n.ends("web", "192.0.2.2") // meanwhile
	n.run()
	if got := n.ask(to); got != "192.0.2.2:8080" {
		t.Errorf("when it is back: %q", got)
	}
	n.must(n.api.Client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	harness.Eventually(t, "nobody answers", func() (bool, string) { got := n.ask(to); return got == "", got })
	n.must(harness.InNetNS(n.path, func() error { return Remove(t.Context(), testNetworks, t.TempDir()) }))
}

// Load balancers are told whether the node has endpoints of a service.
func TestHealthCheckNodePort(t *testing.T) {
	n := newNode(t)
	var other net.Listener // who has the port goes while the role waits for it
	n.in(func() (err error) { other, err = net.Listen("tcp", ":31999"); return err })
	defer other.Close()
	n.run()
	s := n.service("lb", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = 31999
	})
	to := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), 80).String()
	n.ends("lb", "192.0.2.1")
	harness.Eventually(t, "the service is led", func() (bool, string) { got := n.ask(to); return got != "", got })
	n.ends("lb")
	n.must(other.Close())
	asked := func(status int, local float64) func() (bool, string) {
		return func() (ok bool, seen string) {
			n.in(func() error {
				// A client of its own: its connection is of this thread's namespace.
				var d net.Dialer
				conn, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", s.Spec.HealthCheckNodePort))
				if err != nil {
					seen = err.Error()
					return nil
				}
				client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
				res, err := client.Get("http://node/")
				if err != nil {
					seen = err.Error()
					return nil
				}
				defer res.Body.Close()
				var body map[string]any
				if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
					return err
				}
				seen = fmt.Sprint(res.StatusCode, body)
				ok = res.StatusCode == status && body["localEndpoints"] == local
				return nil
			})
			return ok, seen
		}
	}
	harness.Eventually(t, "without endpoints it says no", asked(http.StatusServiceUnavailable, 0))
	n.ends("lb", "192.0.2.1", "192.0.2.2")
	harness.Eventually(t, "with two it says yes", asked(http.StatusOK, 2))
}

// TestAddressesThatServicesName: a load balancer at the node's address is reached at 127.0.0.1, but not where a program listens, and who names an address that the
// node does not permit hears of it.
func TestAddressesThatServicesName(t *testing.T) {
	n := newNode(t)
	node, err := n.api.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	n.must(err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	_, err = n.api.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	n.must(err)
	n.listens = func(_ corev1.Protocol, port int32) string {
		if port == 8080 {
			return "a test"
		}
		return ""
	}
	n.run()
	n.service("web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"8.8.8.8", "192.0.2.2"}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "taken", Port: 8080, TargetPort: intstr.FromInt32(8080)})
		s.Spec.Ports[0].Name = "free"
	})
	s, err := n.api.Client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	n.must(err)
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	_, err = n.api.Client.CoreV1().Services("default").UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	n.must(err)
	n.ends("web", "192.0.2.2")
	harness.Eventually(t, "the load balancer answers at 127.0.0.1", func() (bool, string) { got := n.ask("127.0.0.1:80"); return got == "192.0.2.2:8080", got })
	if got := n.ask("127.0.0.1:8080"); got != "" {
		t.Errorf("where a program listens %s answers", got)
	}
	harness.Eventually(t, "events tell what is left out", func() (bool, string) {
		list, err := n.api.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + addressIgnored})
		n.must(err)
		said := ""
		for _, e := range list.Items {
			said += e.InvolvedObject.Name + ": " + e.Message + "\n"
		}
		return strings.Contains(said, "web: Node n leads nothing to the service there: externalIPs: 8.8.8.8 is in no range") && strings.Contains(said, "192.0.2.2 is an address of this node"), said
	})
}

// outside joins the node to a network, of which a range is load balancers'.
func (n *testNode) outside() {
	n.Helper()
	n.in(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "p0"
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "p1"})
		for _, name := range []string{"p1", "p0"} {
			if err == nil {
				var l netlink.Link
				if l, err = netlink.LinkByName(name); err == nil {
					err = netlink.LinkSetUp(l)
				}
				if err == nil && name == "p0" {
					err = netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(198, 51, 100, 1), Mask: net.CIDRMask(24, 32)}})
				}
			}
		}
		return err
	})
	n.dir, n.balancers = n.TempDir(), []iprange.Range{iprange.Of(netip.MustParsePrefix("198.51.100.64/28"))}
}

// balancer makes a service of the type LoadBalancer with an address.
func (n *testNode) balancer(name, address string) {
	n.Helper()
	s := n.service(name, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	_, err := n.api.Client.CoreV1().Services("default").UpdateStatus(n.Context(), s, metav1.UpdateOptions{})
	n.must(err)
}

// announces waits until the node has as many addresses of load balancers as wanted, and returns them.
func (n *testNode) announces(what string, want func(count int) bool) (has []string) {
	n.Helper()
	harness.Eventually(n.T, what, func() (bool, string) {
		has = n.announced()
		return want(len(has)), fmt.Sprint(has)
	})
	return has
}

func (n *testNode) announced() (has []string) {
	n.Helper()
	n.in(func() error {
		l, err := netlink.LinkByName("p0")
		if err != nil {
			return err
		}
		all, err := netlink.AddrList(l, netlink.FAMILY_V4)
		for i := range all {
			if ones, _ := all[i].Mask.Size(); ones == 32 {
				has = append(has, all[i].IP.String())
			}
		}
		return err
	})
	slices.Sort(has)
	return has
}

// Of several nodes one announces an address: this one has some of them, and all when the other one is not ready.
func TestNodesShareAddresses(t *testing.T) {
	n := newNode(t)
	n.outside()
	nodes := n.api.Client.CoreV1().Nodes()
	ready := func(name string, is corev1.ConditionStatus) {
		t.Helper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		_, err := nodes.Patch(t.Context(), name, types.StrategicMergePatchType, fmt.Appendf(nil, `{"status": {"conditions": [{"type": "Ready", "status": %q}]}}`, is), metav1.PatchOptions{}, "status")
		n.must(err)
	}
	ready("n", corev1.ConditionTrue)
	ready("m", corev1.ConditionTrue)
	stop := n.run()
	const services = 8
	for i := range services {
		n.balancer(fmt.Sprint("lb-", i), fmt.Sprintf("198.51.100.%d", 64+i))
	}
	own := 0
	for i := range services {
		in := plan.Input{Service: &corev1.Service{}, Node: plan.Node{Announcers: []string{"m", "n"}}}
		if plan.Announcer(in, discoveryv1.AddressTypeIPv4, netip.AddrFrom4([4]byte{198, 51, 100, byte(64 + i)})) == "n" {
			own++
		}
	}
	some := func(count int) bool { return count == own }
	mine := n.announces("this node has its own", some)
	if len(mine) == 0 || len(mine) == services {
		t.Fatalf("they are not shared: %v", mine)
	}
	ready("m", corev1.ConditionUnknown)
	n.announces("the other one is not ready", func(count int) bool { return count == services })
	ready("m", corev1.ConditionTrue)
	if again := n.announces("the other one is back", some); !slices.Equal(again, mine) {
		t.Errorf("this node has %v, before %v", again, mine)
	}
	n.must(nodes.Delete(t.Context(), "m", metav1.DeleteOptions{}))
	n.announces("the other one has gone", func(count int) bool { return count == services })
	stop()
	n.must(harness.InNetNS(n.path, func() error { return Remove(t.Context(), testNetworks, n.dir) }))
	n.announces("what was made is removed", func(count int) bool { return count == 0 })
}

// Who may not see the other nodes does not announce addresses, which others may announce as well, but serves services.
func TestWhoSeesNoNodesServesAllTheSame(t *testing.T) {
	n := newNode(t)
	n.outside()
	as := rest.CopyConfig(n.api.Config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:node:n", Groups: []string{"system:nodes", "system:authenticated"}}
	var err error
	n.kube, err = kubernetes.NewForConfig(as)
	n.must(err)
	_, err = n.api.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	n.must(err)
	n.balancer("lb", "198.51.100.64")
	n.ends("lb", "192.0.2.1")
	stop := n.run()
	if got := n.ask("198.51.100.64:80"); got != "192.0.2.1:8080" {
		t.Errorf("the service: %q", got)
	}
	stop()
	if has := n.announced(); len(has) > 0 {
		t.Errorf("announced are %v", has)
	}
	_, err = n.api.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "monopod-proxy"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	n.must(err)
	harness.Eventually(t, "the rights are known", func() (bool, string) {
		_, err := n.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	stop = n.run()
	n.announces("it is announced", func(count int) bool { return count == 1 })
	stop()
	n.must(harness.InNetNS(n.path, func() error { return Remove(t.Context(), testNetworks, n.dir) }))
}
