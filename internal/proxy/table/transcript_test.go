package table

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/proxy/plan"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// scene is a cluster with a few services, and a kernel that is told of them, without either: what the API says goes through the plan and the book, and what the
// kernel would be told is written down in words.
type scene struct {
	t        *testing.T
	book     *book
	ways     map[wayKey]bool
	services map[string]*corev1.Service
	ends     map[string][]string // of a service, in the words of endpoint
	flows    []ruleset.Flow      // of UDP, that the kernel knows
	lists    map[listID]string
	out      strings.Builder
}

// serve adds or changes a service.
func (s *scene) serve(name string, change func(*corev1.Service)) {
	of := s.services[name]
	if of == nil {
		of = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
		s.services[name] = of
	}
	change(of)
}

// endpoint is "10.61.0.5 here" or "10.62.0.5 elsewhere", with "terminating" behind it for one that is ending, and answers still.
func endpoint(words string) (e discoveryv1.Endpoint) {
	w := strings.Fields(words)
	e.Addresses, e.NodeName = w[:1], &w[1]
	if len(w) > 2 {
		yes, no := true, false
		e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	}
	return e
}

// step has the API say something, and writes down what becomes of it.
func (s *scene) step(title string, change func(), touched ...string) {
	s.t.Helper()
	change()
	fmt.Fprintf(&s.out, "## %s\n", title)
	changes := map[string]*Service{}
	fronts := map[plan.Front]bool{}
	for _, name := range touched {
		key := "default/" + name
		changes[key] = nil
		if of := s.services[name]; of != nil {
			changes[key] = &Service{Created: of.CreationTimestamp.Time, Plan: s.plan(of)}
		}
		addFronts(fronts, s.book.services[key])
	}
	ops, _ := s.book.put(s.book.entriesOf(changes))
	for _, name := range touched {
		addFronts(fronts, s.book.services["default/"+name])
	}
	s.writeWays(ops.ways())
	s.writeElements(ops)
	s.writeFlows(fronts)
	s.out.WriteString("\n")
}

func (s *scene) plan(of *corev1.Service) plan.Service {
	in := plan.Input{Service: of, Node: plan.Node{Name: "here"}}
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for _, p := range of.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.TargetPort.IntVal, Protocol: &p.Protocol})
	}
	for _, e := range s.ends[of.Name] {
		slice.Endpoints = append(slice.Endpoints, endpoint(e))
	}
	in.Slices = append(in.Slices, slice)
	p := plan.Of(in)
	for name := range p.Lists {
		s.lists[idOf(name)] = name
	}
	for _, f := range append(p.Faults, p.Ignored...) {
		fmt.Fprintln(&s.out, "left out:", f)
	}
	return p
}

// writeWays writes the chains that a first transaction makes: nothing goes there yet.
func (s *scene) writeWays(needed map[wayKey]bool) {
	var lines []string
	for k := range needed {
		if !s.ways[k] && !k.way.refuses() {
			lines = append(lines, "chain "+chainOf(k))
		}
		s.ways[k] = true
	}
	slices.Sort(lines)
	for _, l := range lines {
		fmt.Fprintln(&s.out, l)
	}
}

// writeElements writes the transaction: what goes, and then what comes.
func (s *scene) writeElements(ops operations) {
	gone, come := ops.elements()
	if len(gone)+len(come) == 0 {
		s.out.WriteString("nothing changes\n")
	}
	for sign, all := range []map[setID][]element{elementsIn(ops, false), elementsIn(ops, true)} {
		if want := []int{len(gone), len(come)}[sign]; len(all) != want {
			s.t.Errorf("%d sets are written down, %d are told of", len(all), want)
		}
		for _, id := range setIDs() {
			var lines []string
			for _, el := range all[id] {
				value := ""
				if sign == 1 {
					value = s.value(el, ops[el].to)
				}
				lines = append(lines, fmt.Sprintf("%s %-10s %s%s", []string{"-", "+"}[sign], namesOf("").set(id).Name, s.key(el), value))
			}
			slices.Sort(lines)
			for _, l := range lines {
				fmt.Fprintln(&s.out, l)
			}
		}
	}
}

func elementsIn(ops operations, come bool) map[setID][]element {
	all := map[setID][]element{}
	for el, op := range ops {
		if op.changes() && (come && op.has || !come && op.had) {
			all[el.set] = append(all[el.set], el)
		}
	}
	return all
}

var protocols = map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP"}

// front is where a service is reached, in words.
func front(f plan.Front) string {
	at := netip.AddrPortFrom(f.Addr, f.Port).String()
	if f.Addr.IsUnspecified() {
		at = fmt.Sprint("node port ", f.Port)
	}
	return protocols[f.Protocol] + " " + at
}

func (s *scene) list(id string) string {
	if name, known := s.lists[listID([]byte(id))]; known {
		return name
	}
	return hex.EncodeToString([]byte(id))
}

// key is an element's, in words.
func (s *scene) key(el element) string {
	address := func(b string) string { a, _ := netip.AddrFromSlice([]byte(b)); return a.String() }
	switch el.set.kind {
	case services, outside, limited:
		f, _ := frontOf(el.key)
		return front(f)
	case allowed: // a front and the first address, and the same with the last one
		half := el.key[:len(el.key)/2]
		f, _ := frontOf(half[:len(half)-4])
		return fmt.Sprintf("%s from %s to %s", front(f), address(half[len(half)-4:]), address(el.key[len(el.key)-4:]))
	case endpoints:
		return fmt.Sprintf("%s, number %d", s.list(el.key[:8]), binary.NativeEndian.Uint32([]byte(el.key[8:])))
	case members:
		at, _ := endpointOf(el.key[8:])
		return fmt.Sprintf("%s, %s", s.list(el.key[:8]), at)
	case hairpin:
		return address(el.key[:4])
	}
	return address(el.key)
}

// value is what an element has, in words.
func (s *scene) value(el element, value string) string {
	switch el.set.kind {
	case endpoints:
		at, _ := endpointOf(value)
		return ": " + at.String()
	case services, outside:
		k, _ := wayOfValue(el, value)
		text := ": " + chainOf(k)
		if !k.way.refuses() {
			text += ", " + s.list(value[12:])
		}
		if value[4] != 0 {
			text += ", masqueraded"
		}
		return text
	}
	return ""
}

// writeFlows writes which flows of UDP are forgotten, and forgets them.
func (s *scene) writeFlows(fronts map[plan.Front]bool) {
	udp := map[plan.Front]bool{}
	for f := range fronts {
		if f.Protocol == unix.IPPROTO_UDP {
			udp[f] = true
		}
	}
	tbl := &Table{book: s.book}
	s.flows = slices.DeleteFunc(s.flows, func(f ruleset.Flow) bool {
		stale := len(udp) > 0 && tbl.stale(f, udp, nil)
		if stale {
			fmt.Fprintf(&s.out, "forget    UDP flow to %s, answered by %s\n", f.To, f.Answers)
		}
		return stale
	})
}

// TestTranscript: a service comes, its endpoints, affinity, other ways to it; all of it goes again. testdata/transcript.txt has what the kernel is told at each step. It is pure.
func TestTranscript(t *testing.T) {
	s := &scene{t: t, book: newBook(), ways: map[wayKey]bool{}, services: map[string]*corev1.Service{}, ends: map[string][]string{}, lists: map[listID]string{}}
	flow := func(answers string) {
		vip := netip.MustParseAddrPort("10.43.0.7:53")
		at := vip // nobody has translated it
		if answers != "" {
			at = netip.MustParseAddrPort(answers)
		}
		s.flows = append(s.flows, ruleset.Flow{Protocol: unix.IPPROTO_UDP, To: vip, Answers: at})
	}
	ends := func(all ...string) func() { return func() { s.ends["web"] = all } }
	web := func(change func(*corev1.Service)) func() { return func() { s.serve("web", change) } }

	s.step("a service comes: TCP and UDP, without endpoints", web(func(of *corev1.Service) {
		of.Spec.ClusterIP, of.Spec.ClusterIPs = "10.43.0.7", []string{"10.43.0.7"}
		of.Spec.Ports = []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)},
			{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(5353)},
		}
	}), "web")
	flow("") // somebody asks in vain
	s.step("an endpoint comes, at this node", ends("10.61.0.5 here"), "web")
	flow("10.61.0.5:5353")
	s.step("another one comes, elsewhere", ends("10.61.0.5 here", "10.62.0.6 elsewhere"), "web")
	flow("10.62.0.6:5353")
	s.step("the same once more", func() {}, "web")
	s.step("session affinity: a client keeps its endpoint for ten minutes", web(func(of *corev1.Service) {
		seconds := int32(600)
		of.Spec.SessionAffinity, of.Spec.SessionAffinityConfig = corev1.ServiceAffinityClientIP, &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}), "web")
	s.step("a third endpoint comes, ahead of the second by its address", ends("10.61.0.5 here", "10.62.0.1 elsewhere", "10.62.0.6 elsewhere"), "web")
	s.step("the first endpoint is ending: it gets no new connections, and answers to those that it has", ends("10.61.0.5 here terminating", "10.62.0.1 elsewhere", "10.62.0.6 elsewhere"), "web")
	s.step("it has gone", ends("10.62.0.1 elsewhere", "10.62.0.6 elsewhere"), "web")
	s.step("no session affinity any more", web(func(of *corev1.Service) {
		of.Spec.SessionAffinity, of.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	}), "web")
	s.step("a port of every node leads to it", web(func(of *corev1.Service) {
		of.Spec.Type, of.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
	}), "web")
	s.step("a load balancer has an address for it, for some of its clients", web(func(of *corev1.Service) {
		of.Spec.Type, of.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{"198.51.100.0/24"}
		of.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}
	}), "web")
	s.step("from outside only endpoints of this node are asked, and there is none", web(func(of *corev1.Service) {
		of.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}), "web")
	s.step("one comes at this node", ends("10.61.0.9 here", "10.62.0.1 elsewhere", "10.62.0.6 elsewhere"), "web")
	s.step("a younger service has the same address: the elder keeps it", func() {
		s.serve("young", func(of *corev1.Service) {
			of.CreationTimestamp = metav1.Unix(1_000_000_000, 0)
			of.Spec.ClusterIP, of.Spec.ClusterIPs = "10.43.0.7", []string{"10.43.0.7"}
			of.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(9090)}}
		})
		s.ends["young"] = []string{"10.62.0.8 elsewhere"}
	}, "young")
	s.step("all endpoints go", ends(), "web")
	s.step("the service goes: the younger one has the address", func() { delete(s.services, "web") }, "web")
	s.step("that one goes, too", func() { delete(s.services, "young") }, "young")
	if n := len(s.book.wanted); n != 0 {
		t.Errorf("%d elements are left", n)
	}
	golden(t, "transcript.txt", "# What the kernel is told of a service, one transaction after another: - goes, + comes. `go test ./internal/proxy/table -run TestTranscript -rewrite` writes it anew.\n\n"+
		strings.TrimSuffix(s.out.String(), "\n"))
}

// golden compares a text with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil { // a file of the sources
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("%s differs from line %d on; -rewrite writes it anew. Now it is:\n%s", path, i+1, strings.Join(a[i:], "\n"))
		}
	}
}
