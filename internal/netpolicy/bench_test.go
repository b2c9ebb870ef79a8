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

	"monopod.dev/monopod/internal/kit/ids"
)

// crowded is a role that enforces a policy for each five of so many pods of this node, with a kernel that is none, and those pods.
func crowded(b *testing.B, n int) (*Role, []*corev1.Pod) {
	b.Helper()
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
		r.Connecting(Endpoint{SandboxID: ids.SandboxID(fmt.Sprint("s", i)), Namespace: "shop", Name: fmt.Sprint("pod", i), UID: uid, Addresses: []netip.Addr{ip}})
	}
	r.podFeed().replace(pods)
	if err := r.step(b.Context()); err != nil || !r.enforced {
		b.Fatalf("there are no rules: %v", err)
	}
	return r, pods
}

// BenchmarkPodChanged is one of so many pods that gets another label, until the rules say so: what it costs must not grow with their number.
func BenchmarkPodChanged(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, pods := crowded(b, n)
			feed, pod := r.podFeed(), pods[n/2]
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

// BenchmarkNamespace is a namespace without pods that comes and goes, beside so many pods of another one, until the rules say so.
func BenchmarkNamespace(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, _ := crowded(b, n)
			feed, other := r.namespaceFeed(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
			b.ReportAllocs()
			for b.Loop() {
				for _, note := range []func(*corev1.Namespace) bool{feed.set, feed.drop} {
					if !note(other) {
						b.Fatal("that is no news")
					}
					if err := r.step(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
