package compile

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BenchmarkAnotherPod is what the compiler does when one of so many pods goes and comes back, of applications of five pods with a policy each: what it costs must not grow with
// their number.
func BenchmarkAnotherPod(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var policies []*networkingv1.NetworkPolicy
			for i := range n / 5 {
				port := intstr.FromInt32(int32(8000 + i%50))
				policies = append(policies, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i)}, Spec: networkingv1.NetworkPolicySpec{
					PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", i)}},
					Ingress: []networkingv1.NetworkPolicyIngressRule{{
						Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
						From: []networkingv1.NetworkPolicyPeer{
							{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", (i+1)%(n/5))}}},
							{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("192.0.%d.0/24", i)}},
						},
					}},
				}})
			}
			var pods []Pod
			for i := range n {
				pods = append(pods, Pod{Key: fmt.Sprint(i), Kind: kind("shop", fmt.Sprint("a", i%(n/5))), Local: true,
					Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})}})
			}
			c := New()
			c.Learn(policies, []Namespace{{Name: "shop"}})
			c.Compile(pods)
			b.ReportAllocs()
			for b.Loop() {
				c.Update(nil, []string{pods[0].Key})
				c.Update(pods[:1], nil)
			}
		})
	}
}
