package netpolicy

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkPodChanged is one of so many pods of this node that gets another label, until the rules say so, with a policy for each five of them: what it costs must not grow with
// their number.
func BenchmarkPodChanged(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newRole(&kernel{}, "n", slog.New(slog.DiscardHandler))
			r.feeds = &feeds{} // somebody tells of pods
			for i := range n / 5 {
				p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i)},
					Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", i)}}}}
				r.facts.policies[policyKey(p)] = p
			}
			r.facts.policiesKnown = true
			r.namespaceFeed().replace([]*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}})
			var pods []*corev1.Pod
			for i := range n {
				uid := types.UID(fmt.Sprint("u", i))
				ip := netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)})
				pods = append(pods, factPod("shop", fmt.Sprint("pod", i), uid, at("n"), addressed(ip.String()), func(p *corev1.Pod) {
					p.Labels = map[string]string{"app": fmt.Sprint("a", i%(n/5))}
				}))
				r.Connecting(Endpoint{SandboxID: fmt.Sprint("s", i), Namespace: "shop", Name: fmt.Sprint("pod", i), UID: string(uid), Addresses: []netip.Addr{ip}})
			}
			feed := r.podFeed()
			feed.replace(pods)
			if err := r.step(b.Context()); err != nil || !r.enforced {
				b.Fatalf("there are no rules: %v", err)
			}
			pod := pods[n/2]
			other := pod.DeepCopy()
			other.Labels["more"] = "yes"
			b.ReportAllocs()
			for b.Loop() {
				if !feed.set(other) {
					b.Fatal("that is no news")
				}
				if err := r.step(b.Context()); err != nil {
					b.Fatal(err)
				}
				pod, other = other, pod
			}
		})
	}
}
