package netpolicy

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/netpolicy/compile"
)

// wholeView is what rules are to be compiled of, found by looking at everything. kinds are what was known of the pods of sandboxes before.
func wholeView(f *facts, kinds map[*endpoint]*compile.Kind) map[string]compile.Pod {
	all, held, here := map[string]compile.Pod{}, map[netip.Addr]bool{}, map[types.UID]bool{}
	byAddress := map[netip.Addr]types.UID{}
	for uid, p := range f.pods {
		for _, a := range p.addresses {
			if !p.gone && p.here && (byAddress[a] == "" || uid < byAddress[a]) {
				byAddress[a] = uid
			}
		}
	}
	for id, e := range f.endpoints {
		uid := e.UID
		for _, a := range e.Addresses {
			if held[a] = true; uid == "" {
				uid = byAddress[a]
			}
		}
		if e.UID != "" && f.pods[uid] == nil && f.mirrors[e.static()] != "" {
			uid = f.mirrors[e.static()]
		}
		if p := f.pods[uid]; p != nil {
			kinds[e] = p.kind
		}
		if kinds[e] != nil {
			here[uid] = true
			all[string(id)] = compile.Pod{Key: string(id), Kind: kinds[e], Addresses: e.Addresses, Local: true}
		}
	}
	for uid, p := range f.pods {
		addresses := slices.DeleteFunc(slices.Clone(p.addresses), func(a netip.Addr) bool { return held[a] })
		if !p.gone && !here[uid] && len(addresses) > 0 {
			all[string(uid)] = compile.Pod{Key: string(uid), Kind: p.kind, Addresses: addresses}
		}
	}
	return all
}

func written(pods map[string]compile.Pod) string {
	var out strings.Builder
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		p := pods[uid]
		fmt.Fprintf(&out, "%s: %s %v local %v\n", uid, p.Kind.Labels["uid"]+p.Kind.Labels["more"], p.Addresses, p.Local)
	}
	return out.String()
}

// TestViewsAddUp: whatever comes, changes and goes, the views that tell only what is new come to what looking at everything does, and nothing is kept of what is gone.
func TestViewsAddUp(t *testing.T) {
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 4))
		f := newFacts("n")
		f.policiesKnown, f.namespacesKnown, f.podsKnow = true, true, true
		one := func(from string, n int) string { return fmt.Sprint(from, chance.IntN(n)) }
		addresses := func() (all []netip.Addr) {
			for range chance.IntN(3) {
				if a := netip.AddrFrom4([4]byte{10, 0, 0, byte(chance.IntN(5))}); !slices.Contains(all, a) {
					all = append(all, a)
				}
			}
			return all
		}
		pod := func() *corev1.Pod {
			uid := one("u", 6)
			p := factPod("shop", "web-"+uid, types.UID(uid), at(one("n", 2)))
			p.Spec.NodeName = strings.TrimSuffix(p.Spec.NodeName, "0") // this node's, or n1's
			p.Spec.HostNetwork = chance.IntN(6) == 0
			for _, a := range addresses() {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
			}
			if chance.IntN(3) == 0 { // a mirror of a static pod
				mirrorOf(one("static", 2))(p)
				owned("Node", "n")(p)
				p.Name = "static"
			}
			if chance.IntN(3) == 0 {
				p.Labels = map[string]string{"uid": uid, "more": one("x", 3)}
			}
			return p
		}
		kinds := map[*endpoint]*compile.Kind{}
		got, namespaces := map[string]compile.Pod{}, map[string]compile.Namespace{}
		for step := range 60 {
			for range 1 + chance.IntN(3) {
				switch chance.IntN(12) {
				case 0, 1, 2, 3:
					p := pod()
					f.setPod(p.UID, factOf(p, f.node))
				case 4, 5:
					f.dropPod(types.UID(one("u", 6)))
				case 6, 7, 8:
					e := Endpoint{SandboxID: ids.SandboxID(one("s", 4)), Namespace: "shop", Addresses: addresses()}
					switch chance.IntN(4) {
					case 0:
						e.UID, e.Name = types.UID(one("static", 2)), "static"
					case 1, 2:
						e.UID = types.UID(one("u", 6))
						e.Name = "web-" + string(e.UID)
					}
					f.connect(e)
				case 9:
					f.disconnect(ids.SandboxID(one("s", 4)))
				case 10:
					if chance.IntN(4) == 0 {
						f.forgetPods()
					}
				case 11:
					if chance.IntN(4) == 0 {
						f.learn = true
					}
				}
				switch ns := one("ns", 4); chance.IntN(12) {
				case 0:
					f.namespaces[ns] = compile.Namespace{Name: ns, Labels: map[string]string{"step": fmt.Sprint(step)}}
					f.relabelled[ns] = true
				case 1:
					delete(f.namespaces, ns)
					f.relabelled[ns] = true
				case 2:
					f.unsettle()
				}
			}
			v, whole := f.view()
			if !whole {
				t.Fatal("all is known, and it is said not to be")
			}
			if v.all {
				clear(got)
			}
			if v.learn {
				clear(namespaces)
			}
			for _, name := range v.without {
				delete(namespaces, name)
			}
			for _, n := range v.namespaces {
				namespaces[n.Name] = n
			}
			if got, want := fmt.Sprint(namespaces), fmt.Sprint(f.namespaces); got != want {
				t.Fatalf("seed %d, step %d: of namespaces was told %s, and there are %s", seed, step, got, want)
			}
			for _, key := range v.gone {
				delete(got, key)
			}
			for _, p := range v.come {
				got[p.Key] = p
			}
			if got, want := written(got), written(wholeView(&f, kinds)); got != want {
				t.Fatalf("seed %d, step %d: what was told comes to\n%sand there is\n%s", seed, step, got, want)
			}
			if again, _ := f.view(); again.all || len(again.come)+len(again.gone)+len(again.namespaces)+len(again.without) > 0 {
				t.Fatalf("seed %d, step %d: nothing is new, and %v are told", seed, step, again)
			}
		}
		for _, id := range slices.Collect(maps.Keys(f.endpoints)) {
			f.disconnect(id)
		}
		for _, uid := range slices.Collect(maps.Keys(f.pods)) {
			f.dropPod(uid)
		}
		f.view()
		if left := len(f.ofUID) + len(f.at) + len(f.claims) + len(f.as) + len(f.mirrors) + len(f.news.pods) + len(f.news.sandboxes) + len(f.news.unsettled); left > 0 {
			t.Fatalf("seed %d: %d entries are left of what is gone", seed, left)
		}
	}
}

// TestNothingIsNotedForNobody: while nothing is enforced what changes is not collected.
func TestNothingIsNotedForNobody(t *testing.T) {
	f := newFacts("n")
	note := func(what string) {
		t.Helper()
		f.connect(Endpoint{SandboxID: "s", UID: "u"})
		f.disconnect("s")
		if len(f.news.pods)+len(f.news.sandboxes) > 0 {
			t.Errorf("%s, and noted are %v", what, f.news)
		}
	}
	note("nothing is known")
	f.policiesKnown, f.namespacesKnown, f.podsKnow = true, true, true
	f.policies[types.NamespacedName{Name: "p"}] = &networkingv1.NetworkPolicy{}
	f.view()
	f.forget()
	note("nobody watches any more")
}

// TestANamespaceIsRelabelled: what follows for the pods of a namespace does at once, whether or not anything else has changed.
func TestANamespaceIsRelabelled(t *testing.T) {
	k := &kernel{}
	r := newRole(k, "n", slog.New(slog.DiscardHandler))
	r.feeds = &feeds{} // somebody tells of pods and namespaces
	from := metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	r.facts.policies[types.NamespacedName{Namespace: "shop", Name: "p"}] = &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"},
		Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &from}},
		}}},
	}
	r.facts.policiesKnown = true
	client := netip.MustParseAddr("10.0.0.1")
	r.Connecting(Endpoint{SandboxID: "s", Namespace: "watch", Name: "client", UID: "u1", Addresses: []netip.Addr{client}})
	namespaces := r.namespaceFeed()
	namespaces.replace([]*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}})
	r.podFeed().replace([]*corev1.Pod{factPod("watch", "client", "u1", at("n"))})
	labelled := func(labels map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "watch", Labels: labels}}
	}
	for _, s := range []struct {
		what  string
		event func()
		let   bool
	}{
		{"its namespace is not known yet", func() {}, false},
		{"its namespace comes", func() { namespaces.set(labelled(map[string]string{"team": "a"})) }, true},
		{"it gets another label", func() { namespaces.set(labelled(map[string]string{"team": "b"})) }, false},
		{"while all pods are listed anew it gets the first again", func() {
			namespaces.set(labelled(map[string]string{"team": "a"}))
			r.podFeed().replace([]*corev1.Pod{factPod("watch", "client", "u1", at("n"))})
		}, true},
		{"it is gone", func() { namespaces.drop(labelled(nil)) }, false},
	} {
		s.event()
		if err := r.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, let := k.rules.Verdicts[compile.Ingress].Peers[client]; let != s.let {
			t.Errorf("%s: the pod is named by the policy: %v, want %v", s.what, let, s.let)
		}
	}
}
