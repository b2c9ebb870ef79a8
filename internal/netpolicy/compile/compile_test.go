package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const tcp, udp, sctp, icmp = 6, 17, 132, 1

// judgeBy looks a connection up as the kernel does: whether a direction lets it pass.
func judgeBy(r *Rules, d Direction, pod, peer netip.Addr, protocol byte, port uint16) bool {
	v := &r.Verdicts[d]
	class, known := v.Pods[pod]
	if !known {
		return false
	}
	if class == Free || pod == peer {
		return true
	}
	peers := []Class{Anybody}
	if p, ok := v.Peers[peer]; ok {
		peers = append(peers, p)
	}
	for _, b := range v.Blocks {
		if b.From.Compare(peer) <= 0 && peer.Compare(b.To) <= 0 {
			peers = append(peers, b.Class)
		}
	}
	for _, p := range peers {
		if v.Open[Pair{class, p}] {
			return true
		}
		if profile, ok := v.Ported[Pair{class, p}]; ok {
			for have := range r.Ports {
				if have.Profile == profile && have.Protocol == protocol && have.From <= port && port <= have.To {
					return true
				}
			}
		}
	}
	return false
}

// passes says whether a connection is let through, between pods of this node and others.
func passes(r *Rules, from, to string, protocol byte, port uint16) bool {
	a, b := netip.MustParseAddr(from), netip.MustParseAddr(to)
	_, out := r.Verdicts[Egress].Pods[a]
	_, in := r.Verdicts[Ingress].Pods[b]
	return (!out || judgeBy(r, Egress, a, b, protocol, port)) && (!in || judgeBy(r, Ingress, b, a, protocol, port))
}

// The cluster of the tests: pods of two namespaces on this node, one on another node, and machines without.
const (
	web, web6   = "10.0.0.1", "fd00::1" // namespace shop, app=web, ports http 8080 and dns 53/udp
	db          = "10.0.0.2"            // namespace shop, app=db, port http 9090
	probe       = "10.0.0.3"            // namespace watch, app=probe
	remote      = "10.1.0.4"            // namespace watch, app=web, on another node, port http 7070
	outside     = "192.0.2.7"
	outside6    = "2001:db8::7"
	nextOutside = "192.0.2.8"
)

func kind(namespace, app string, ports ...corev1.ContainerPort) *Kind {
	return KindOf(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}},
	})
}

func addrs(list ...string) (all []netip.Addr) {
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func testPods() []Pod {
	http := func(n int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: "http", Protocol: corev1.ProtocolTCP, ContainerPort: n}
	}
	return []Pod{
		{Key: "4", Kind: kind("watch", "web", http(7070)), Addresses: addrs(remote)},
		{Key: "1", Kind: kind("shop", "web", http(8080), corev1.ContainerPort{Name: "dns", Protocol: corev1.ProtocolUDP, ContainerPort: 53}),
			Addresses: addrs(web, web6), Local: true},
		{Key: "2", Kind: kind("shop", "db", http(9090)), Addresses: addrs(db), Local: true},
		{Key: "3", Kind: kind("watch", "probe"), Addresses: addrs(probe), Local: true},
		{Key: "5", Kind: kind("watch", "host"), Local: false}, // of the host's network
	}
}

func testNamespaces() []Namespace {
	return []Namespace{{"shop", map[string]string{"team": "a"}}, {"watch", map[string]string{"team": "b"}}}
}

func policies(t *testing.T, specs ...string) (all []*networkingv1.NetworkPolicy) {
	t.Helper()
	for i, text := range specs {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i)}}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// flow is a connection that is tried.
type flow struct {
	from, to string
	protocol byte
	port     uint16
}

func (f flow) String() string { return fmt.Sprintf("%s > %s %d/%d", f.from, f.to, f.protocol, f.port) }

func TestCompile(t *testing.T) {
	for name, tc := range map[string]struct {
		specs []string
		pass  []flow
		stop  []flow
	}{
		"nothing is isolated without policies": {nil,
			[]flow{{outside, web, tcp, 80}, {web, outside, udp, 53}, {probe, db, icmp, 0}}, nil},
		"deny all that comes": {[]string{"{podSelector: {}, policyTypes: [Ingress]}"},
			[]flow{{web, outside, tcp, 80}, {probe, remote, tcp, 1}, {web, web, tcp, 1}},
			[]flow{{outside, web, tcp, 80}, {db, web, tcp, 80}, {outside6, web6, tcp, 80}, {probe, db, icmp, 0}}},
		"ingress is what a policy without types is about": {[]string{"{podSelector: {}}"},
			[]flow{{web, outside, tcp, 80}}, []flow{{outside, web, tcp, 80}}},
		"egress rules make it about egress": {[]string{"{podSelector: {}, egress: [{to: [{podSelector: {}}]}]}"},
			nil, []flow{{web, outside, tcp, 80}, {outside, web, tcp, 80}, {web, db, tcp, 80}}},
		"deny all that goes": {[]string{"{podSelector: {}, policyTypes: [Egress]}"},
			[]flow{{outside, web, tcp, 80}, {probe, outside, tcp, 80}},
			[]flow{{web, outside, tcp, 80}, {web, db, tcp, 80}, {web, probe, udp, 1}}},
		"only the selected pods": {[]string{"{podSelector: {matchLabels: {app: web}}}"},
			[]flow{{outside, db, tcp, 80}, {outside, probe, tcp, 80}}, []flow{{outside, web, tcp, 80}}},
		"an expression": {[]string{"{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}}"},
			[]flow{{outside, web, tcp, 80}}, []flow{{outside, db, tcp, 80}}},
		"everybody may": {[]string{"{podSelector: {}, ingress: [{}]}"},
			[]flow{{outside, web, tcp, 80}, {outside6, web6, sctp, 9}, {probe, db, icmp, 0}}, nil},
		"pods of the namespace": {[]string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"},
			[]flow{{db, web, tcp, 80}, {db, web, icmp, 0}}, []flow{{probe, web, tcp, 80}, {remote, web, tcp, 80}, {outside, web, tcp, 80}}},
		"some pods of the namespace": {[]string{"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}"},
			[]flow{{web, db, tcp, 80}}, []flow{{db, web, tcp, 80}, {remote, db, tcp, 80}}},
		"all pods of some namespaces": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}"},
			[]flow{{probe, web, tcp, 80}, {remote, web, tcp, 80}}, []flow{{db, web, tcp, 80}, {outside, web, tcp, 80}}},
		"all namespaces": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}"},
			[]flow{{probe, web, tcp, 80}, {db, web, tcp, 80}, {remote, web, tcp, 1}}, []flow{{outside, web, tcp, 80}}},
		"some pods of some namespaces": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: web}}}]}]}"},
			[]flow{{remote, db, tcp, 80}}, []flow{{probe, db, tcp, 80}, {web, db, tcp, 80}}},
		"one or the other": {[]string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: web}}}]}]}"},
			[]flow{{probe, db, tcp, 80}, {web, db, tcp, 80}}, []flow{{db, web, tcp, 80}, {outside, db, tcp, 80}}},
		"a block": {[]string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.8/32]}}]}]}"},
			[]flow{{outside, web, tcp, 80}, {"192.0.2.0", web, tcp, 80}, {"192.0.2.255", web, tcp, 80}},
			[]flow{{nextOutside, web, tcp, 80}, {"192.0.3.0", web, tcp, 80}, {"192.0.1.255", web, tcp, 80}, {outside6, web6, tcp, 80}, {db, web, tcp, 80}}},
		"a block of IPv6": {[]string{"{podSelector: {}, egress: [{to: [{ipBlock: {cidr: '2001:db8::/32', except: ['2001:db8::8/125']}}]}], policyTypes: [Egress]}"},
			[]flow{{web6, outside6, tcp, 80}, {web6, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", tcp, 80}},
			[]flow{{web6, "2001:db8::8", tcp, 80}, {web6, "2001:db9::", tcp, 80}, {web, outside, tcp, 80}}},
		"all addresses": {[]string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}"},
			[]flow{{outside, web, tcp, 80}, {"0.0.0.0", web, tcp, 80}, {"255.255.255.255", web, tcp, 80}, {db, web, tcp, 80}}, []flow{{outside6, web6, tcp, 80}}},
		"an exception that another block takes back": {[]string{
			"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.8/32]}}, {ipBlock: {cidr: 192.0.2.8/31}}]}]}"},
			[]flow{{nextOutside, web, tcp, 80}}, nil},
		"a block in which pods are": {[]string{"{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/30}}]}]}"},
			[]flow{{db, web, tcp, 80}, {"10.0.0.0", web, tcp, 80}}, []flow{{remote, web, tcp, 80}}},
		"a port": {[]string{"{podSelector: {}, ingress: [{ports: [{protocol: TCP, port: 80}]}]}"},
			[]flow{{outside, web, tcp, 80}}, []flow{{outside, web, tcp, 81}, {outside, web, udp, 80}, {outside, web, icmp, 80}}},
		"a port without protocol is TCP's": {[]string{"{podSelector: {}, ingress: [{ports: [{port: 80}]}]}"},
			[]flow{{outside, web, tcp, 80}}, []flow{{outside, web, udp, 80}}},
		"all ports of a protocol": {[]string{"{podSelector: {}, ingress: [{ports: [{protocol: UDP}, {protocol: SCTP, port: 7}]}]}"},
			[]flow{{outside, web, udp, 1}, {outside, web, udp, 65535}, {outside, web, sctp, 7}}, []flow{{outside, web, tcp, 1}, {outside, web, sctp, 8}}},
		"a range": {[]string{"{podSelector: {}, ingress: [{ports: [{protocol: TCP, port: 8000, endPort: 8080}]}]}"},
			[]flow{{outside, web, tcp, 8000}, {outside, web, tcp, 8080}}, []flow{{outside, web, tcp, 7999}, {outside, web, tcp, 8081}}},
		"ranges that overlap": {[]string{"{podSelector: {}, ingress: [{ports: [{port: 1, endPort: 10}, {port: 5, endPort: 20}, {port: 21}]}]}"},
			[]flow{{outside, web, tcp, 1}, {outside, web, tcp, 15}, {outside, web, tcp, 21}}, []flow{{outside, web, tcp, 22}}},
		"a name is the pod's own": {[]string{"{podSelector: {}, ingress: [{ports: [{port: http}]}]}"},
			[]flow{{outside, web, tcp, 8080}, {outside, db, tcp, 9090}}, []flow{{outside, web, tcp, 9090}, {outside, db, tcp, 8080}, {outside, web, udp, 8080}}},
		"a name of another protocol": {[]string{"{podSelector: {}, ingress: [{ports: [{port: dns, protocol: UDP}]}]}"},
			[]flow{{outside, web, udp, 53}}, []flow{{outside, web, tcp, 53}, {outside, db, udp, 53}}},
		"a name is the peer's where the pod asks": {[]string{"{podSelector: {matchLabels: {app: db}}, egress: [{to: [{namespaceSelector: {}}], ports: [{port: http}]}], policyTypes: [Egress]}"},
			[]flow{{db, web, tcp, 8080}, {db, remote, tcp, 7070}}, []flow{{db, web, tcp, 7070}, {db, remote, tcp, 8080}, {db, outside, tcp, 8080}, {db, probe, tcp, 8080}}},
		"a name at anybody's": {[]string{"{podSelector: {matchLabels: {app: db}}, egress: [{ports: [{port: http}, {port: 443}]}], policyTypes: [Egress]}"},
			[]flow{{db, web, tcp, 8080}, {db, remote, tcp, 7070}, {db, outside, tcp, 443}}, []flow{{db, web, tcp, 7070}, {db, outside, tcp, 8080}}},
		"a name that nobody knows": {[]string{"{podSelector: {}, ingress: [{ports: [{port: absent}]}]}"}, nil, []flow{{outside, web, tcp, 8080}}},
		"policies add up": {[]string{
			"{podSelector: {}}", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]}",
			"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 90}]}]}"},
			[]flow{{db, web, tcp, 80}, {outside, web, tcp, 90}, {outside, db, tcp, 90}},
			[]flow{{outside, web, tcp, 80}, {db, web, tcp, 90}, {web, db, tcp, 80}}},
		"both ends have their say": {[]string{
			"{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}",
			"{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}"},
			[]flow{{db, web, tcp, 80}}, []flow{{db, web, tcp, 81}, {probe, web, tcp, 80}}},
		"ports are for their peers only": {[]string{
			"{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 1}]}, {from: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: 2}]}]}"},
			[]flow{{db, web, tcp, 1}, {probe, web, tcp, 2}}, []flow{{db, web, tcp, 2}, {probe, web, tcp, 1}}},
		"a pod reaches itself": {[]string{"{podSelector: {}, policyTypes: [Ingress, Egress]}"},
			[]flow{{web, web, tcp, 80}, {web6, web6, udp, 80}}, []flow{{web, db, tcp, 80}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := New()
			c.Learn(policies(t, tc.specs...), testNamespaces())
			r := c.Compile(testPods())
			if len(r.Problems) > 0 {
				t.Errorf("problems: %v", r.Problems)
			}
			for _, f := range tc.pass {
				if !passes(&r, f.from, f.to, f.protocol, f.port) {
					t.Errorf("%s is stopped", f)
				}
			}
			for _, f := range tc.stop {
				if passes(&r, f.from, f.to, f.protocol, f.port) {
					t.Errorf("%s passes", f)
				}
			}
		})
	}
}

func TestWhatCannotBeReadLetsNothingPass(t *testing.T) {
	c := New()
	c.Learn(policies(t,
		"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: nonsense}}]}, {from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}",
		"{podSelector: {matchExpressions: [{key: app, operator: Sometimes}]}, ingress: [{}]}"), testNamespaces())
	r := c.Compile(testPods())
	if len(r.Problems) != 2 {
		t.Errorf("problems %v, want one a policy", r.Problems)
	}
	if passes(&r, db, web, tcp, 80) || !passes(&r, outside, web, tcp, 80) {
		t.Error("a rule that cannot be read counts, or one that can does not")
	}
	if passes(&r, outside, probe, tcp, 80) != true {
		t.Error("another namespace is isolated")
	}
}

func TestAPodThatIsNotKnownIsIsolated(t *testing.T) {
	c := New()
	r := c.Compile(nil)
	if judgeBy(&r, Ingress, netip.MustParseAddr(web), netip.MustParseAddr(outside), tcp, 80) {
		t.Error("an address that nobody is known to have is let through")
	}
}

// TestNumbersStay: what did not change has the number that it had, and nothing else ever gets it.
func TestNumbersStay(t *testing.T) {
	c := New()
	all := policies(t, "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]}",
		"{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 81}]}]}")
	c.Learn(all, testNamespaces())
	before := c.Compile(testPods())
	c.Learn(all[1:], testNamespaces())
	after := c.Compile(testPods())
	dbAddr := netip.MustParseAddr(db)
	if a, b := before.Verdicts[Ingress].Pods[dbAddr], after.Verdicts[Ingress].Pods[dbAddr]; a != b {
		t.Errorf("the class of a pod that another policy is about was %d and is %d", a, b)
	}
	webAddr := netip.MustParseAddr(web)
	gone := before.Verdicts[Ingress].Pods[webAddr]
	if got := after.Verdicts[Ingress].Pods[webAddr]; got != Free {
		t.Errorf("a pod whose policy is gone has the class %d", got)
	}
	c.Learn(all, testNamespaces())
	again := c.Compile(testPods())
	if got := again.Verdicts[Ingress].Pods[webAddr]; got == gone || got == Free {
		t.Errorf("the class that came back has the number %d, and had %d before it went", got, gone)
	}
	if !passes(&again, db, web, tcp, 80) || passes(&again, db, web, tcp, 81) {
		t.Error("after it came back the policy lets pass what it did not before, or does not what it did")
	}
}

func TestKindsAreWhatPoliciesSee(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := func(change func(*corev1.Pod)) *Kind {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "n", Labels: map[string]string{"a": "b", "c": "d"}}, Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "setup", Protocol: "TCP", ContainerPort: 1}}},
				{RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "side", Protocol: "TCP", ContainerPort: 2}}},
			},
			Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "main", Protocol: "UDP", ContainerPort: 3}, {Protocol: "TCP", ContainerPort: 4}}}},
		}}
		change(p)
		return KindOf(p)
	}
	base := pod(func(*corev1.Pod) {})
	if want := []NamedPort{{"side", tcp, 2}, {"main", udp, 3}}; !slices.Equal(base.Ports, want) {
		t.Errorf("ports %v, want %v", base.Ports, want)
	}
	for name, tc := range map[string]struct {
		same   bool
		change func(*corev1.Pod)
	}{
		"name":      {true, func(p *corev1.Pod) { p.Name = "m" }},
		"status":    {true, func(p *corev1.Pod) { p.Status.Phase = "Running" }},
		"label":     {false, func(p *corev1.Pod) { p.Labels["c"] = "e" }},
		"namespace": {false, func(p *corev1.Pod) { p.Namespace = "b" }},
		"port":      {false, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 5 }},
	} {
		if got := pod(tc.change).Same(base); got != tc.same {
			t.Errorf("another %s: the same %v, want %v", name, got, tc.same)
		}
	}
}
