package table

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// crowd are pods that are nowhere, and policies about them: 200 applications of 5 pods each, each of which is reached at its port by the one before and from
// a network outside.
func crowd(pods, apps int) (all []compile.Pod, policies []*networkingv1.NetworkPolicy, namespaces []compile.Namespace) {
	tcp := corev1.ProtocolTCP
	for i := range 10 {
		namespaces = append(namespaces, compile.Namespace{Name: fmt.Sprint("ns", i)})
	}
	for i := range apps {
		port := intstr.FromInt32(int32(8000 + i%50))
		policies = append(policies, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i%10), Name: fmt.Sprint("p", i)},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", i)}},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
					From: []networkingv1.NetworkPolicyPeer{
						{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", (i+apps-1)%apps)}}},
						{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("192.0.%d.0/24", i)}},
					},
				}},
			},
		})
	}
	for i := range pods {
		app := i % apps
		k := kindOf(fmt.Sprint("ns", app%10), fmt.Sprint("a", app))
		a := netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)})
		all = append(all, compile.Pod{Key: fmt.Sprint(i), Kind: k, Local: true,
			Addresses: []netip.Addr{a, netip.AddrFrom16([16]byte{0xfd, 2, 14: byte(i >> 8), 15: byte(i)})}})
	}
	return all, policies, namespaces
}

// times are how long it takes so often, the quickest first.
func times(n int, f func()) (all []time.Duration) {
	for range n {
		begin := time.Now()
		f()
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	return all
}

func median(f func()) time.Duration { return times(41, f)[20] }

// TestFigures tells, with -v, what 1,000 pods and 200 policies cost, and requires that a connection does not cost more than a multiple of one without any.
func TestFigures(t *testing.T) {
	h := newHost(t)
	web, db := h.pod("shop", "web"), h.pod("shop", "db")
	web.serve(80)
	db.serve(80)
	h.hostPorts() // as on any node: connections are tracked without policies, too
	connect := func(from, to *machine) (took time.Duration) {
		from.at(func() error {
			took = times(500, func() {
				if err := dialHere(netip.AddrPortFrom(to.ip, 80)); err != nil {
					t.Error(err)
				}
			})[10] // of the quickest: nobody else was in its way
			return nil
		})
		return took
	}
	without := connect(db, web)
	all, policies, namespaces := crowd(1000, 200)
	namespaces = append(namespaces, compile.Namespace{Name: "shop"})
	policies = append(policies, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &intstr.IntOrString{IntVal: 80}}}}}}})
	few := compile.New()
	few.Learn(policies[len(policies)-1:], namespaces)
	r := few.Compile(h.pods)
	h.must(h.table.Apply(&r))
	one := connect(db, web)
	c := compile.New()
	c.Learn(policies, namespaces)
	all = append(h.pods, all...)
	begin := time.Now()
	r = c.Compile(all)
	compiled := time.Since(begin)
	h.must(h.table.Remove())
	begin = time.Now()
	h.must(h.table.Apply(&r))
	whole := time.Since(begin)
	_, elements := h.table.Installed()
	many, free := connect(db, web), connect(web, db)

	last := len(all) - 1
	kinds := []*compile.Kind{all[last].Kind, all[last-1].Kind}
	i := 0
	pod := median(func() {
		all[last].Kind = kinds[i%2]
		i++
		r := c.Compile(all)
		h.must(h.table.Apply(&r))
	})
	policy := median(func() {
		port := intstr.FromInt32(int32(9000 + i))
		i++
		policies[0].Spec.Ingress[0].Ports[0].Port = &port
		c.Learn(policies, namespaces)
		r := c.Compile(all)
		h.must(h.table.Apply(&r))
	})
	t.Logf("1,000 pods, 201 policies, %d elements: first compiled in %v, written in %v; a pod's labels change: %v; a policy changes: %v", elements, compiled, whole, pod, policy)
	t.Logf("a connection: %v without policies, %v with one, %v with 201, %v between pods that nothing isolates from it", without, one, many, free)
	if many > 5*without+time.Millisecond {
		t.Errorf("a connection takes %v with policies, and %v without", many, without)
	}
}
