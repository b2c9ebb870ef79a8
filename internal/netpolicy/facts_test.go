package netpolicy

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// factPod is a pod of the API as the watch keeps it, labelled with its own name.
func factPod(namespace, name string, uid types.UID, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, Labels: map[string]string{"uid": string(uid)}}}
	for _, c := range change {
		c(p)
	}
	return slimPod(p)
}

func at(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func addressed(ip string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: ip}} }
}

func mirrorOf(uid string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: uid} }
}

func owned(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: "o", Controller: ptr.To(true)}}
	}
}

// TestWhosePodASandboxIs: what others write of their pods says nothing of a sandbox.
func TestWhosePodASandboxIs(t *testing.T) {
	server := Endpoint{SandboxID: "s", Namespace: "shop", Name: "server", UID: "u1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	nameless := Endpoint{SandboxID: "s", Addresses: server.Addresses}
	mirror := factPod("shop", "server", "m1", at("n"), mirrorOf("u1"), owned("Node", "n"))
	for name, tc := range map[string]struct {
		of   Endpoint
		pods []*corev1.Pod
		want types.UID // "" of a pod that the API does not tell of
	}{
		"its own":                                  {server, []*corev1.Pod{factPod("shop", "server", "u1", at("n"))}, "u1"},
		"a stranger's annotation":                  {server, []*corev1.Pod{factPod("shop", "server", "u1", at("n")), factPod("evil", "c", "u2", mirrorOf("u1"))}, "u1"},
		"a stranger that is all like a mirror":     {server, []*corev1.Pod{factPod("shop", "server", "u1", at("n")), factPod("evil", "server", "u2", at("n"), mirrorOf("u1"), owned("Node", "n"))}, "u1"},
		"even a true mirror, beside the pod":       {server, []*corev1.Pod{factPod("shop", "server", "u1", at("n")), mirror}, "u1"},
		"a static pod's mirror":                    {server, []*corev1.Pod{mirror}, "m1"},
		"beside which a stranger poses as one":     {server, []*corev1.Pod{mirror, factPod("evil", "server", "u2", at("n"), mirrorOf("u1"), owned("Node", "n"))}, "m1"},
		"no mirror: another's namespace":           {server, []*corev1.Pod{factPod("evil", "server", "u2", at("n"), mirrorOf("u1"), owned("Node", "n"))}, ""},
		"no mirror: another name":                  {server, []*corev1.Pod{factPod("shop", "c", "u2", at("n"), mirrorOf("u1"), owned("Node", "n"))}, ""},
		"no mirror: of no node":                    {server, []*corev1.Pod{factPod("shop", "server", "u2", mirrorOf("u1"), owned("Node", "n"))}, ""},
		"no mirror: of another node":               {server, []*corev1.Pod{factPod("shop", "server", "u2", at("other"), mirrorOf("u1"), owned("Node", "other"))}, ""},
		"no mirror: owned by another node":         {server, []*corev1.Pod{factPod("shop", "server", "u2", at("n"), mirrorOf("u1"), owned("Node", "other"))}, ""},
		"no mirror: owned by something else":       {server, []*corev1.Pod{factPod("shop", "server", "u2", at("n"), mirrorOf("u1"), owned("ConfigMap", "n"))}, ""},
		"no mirror: owned by nobody":               {server, []*corev1.Pod{factPod("shop", "server", "u2", at("n"), mirrorOf("u1"))}, ""},
		"nobody remembers it: by its address":      {nameless, []*corev1.Pod{factPod("shop", "server", "u1", at("n"), addressed("10.0.0.1"))}, "u1"},
		"but not by that of another node's pod":    {nameless, []*corev1.Pod{factPod("shop", "server", "u1", at("n"), addressed("10.0.0.1")), factPod("evil", "c", "u0", at("other"), addressed("10.0.0.1"))}, "u1"},
		"nor of one that is bound to none":         {nameless, []*corev1.Pod{factPod("evil", "c", "u0", addressed("10.0.0.1"))}, ""},
		"of two that claim it always the same one": {nameless, []*corev1.Pod{factPod("shop", "b", "u2", at("n"), addressed("10.0.0.1")), factPod("shop", "a", "u1", at("n"), addressed("10.0.0.1"))}, "u1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts("n")
			f.policiesKnown, f.namespacesKnown, f.podsKnow = true, true, true
			for _, p := range tc.pods {
				f.setPod(p.UID, factOf(p, f.node))
			}
			f.connect(tc.of)
			v, _ := f.view()
			var got types.UID
			for _, p := range v.come {
				if p.Local {
					got = types.UID(p.Kind.Labels["uid"])
				}
			}
			if got != tc.want {
				t.Errorf("it is compiled as the pod %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAMirrorComesAndGoes: the next mirror of a static pod may come before the one that it follows is gone.
func TestAMirrorComesAndGoes(t *testing.T) {
	f := newFacts("n")
	of := staticPod{"u1", "shop", "server"}
	first := factPod("shop", "server", "m1", at("n"), mirrorOf("u1"), owned("Node", "n"))
	next := factPod("shop", "server", "m2", at("n"), mirrorOf("u1"), owned("Node", "n"))
	f.setPod("m1", factOf(first, "n"))
	f.setPod("m2", factOf(next, "n"))
	first.Labels = map[string]string{"other": "label"}
	first.Annotations = nil
	f.setPod("m1", factOf(first, "n"))
	if f.dropPod("m1"); f.mirrors[of] != "m2" {
		t.Errorf("with the first mirror the next one is forgotten: %v", f.mirrors)
	}
	if f.dropPod("m2"); len(f.mirrors) > 0 {
		t.Errorf("mirrors %v are left", f.mirrors)
	}
}

// TestWhatOfAPodCounts: while a pod starts rules are compiled once, for its sandbox.
func TestWhatOfAPodCounts(t *testing.T) {
	web := Endpoint{SandboxID: "s", Namespace: "shop", Name: "web", UID: "u1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	pod := func(change ...func(*corev1.Pod)) *podFact {
		return factOf(factPod("shop", "web", "u1", append(change, at("n"))...), "n")
	}
	labelled := func(p *corev1.Pod) { p.Labels["more"] = "yes" }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	for name, c := range map[string]struct {
		of       Endpoint
		old, now *podFact
		want     bool
	}{
		"it comes before its sandbox":            {Endpoint{UID: "other"}, nil, pod(), false},
		"it comes after its sandbox":             {web, nil, pod(), true},
		"it gets the address of its sandbox":     {web, pod(), pod(addressed("10.0.0.1")), false},
		"its labels change":                      {web, pod(), pod(labelled), true},
		"they change before it has a sandbox":    {Endpoint{UID: "other"}, pod(), pod(labelled), false},
		"another node's comes":                   {Endpoint{UID: "other"}, nil, pod(addressed("10.9.0.1")), true},
		"another node's gets its address":        {Endpoint{UID: "other"}, pod(), pod(addressed("10.9.0.1")), true},
		"another node's gets labels":             {Endpoint{UID: "other"}, pod(addressed("10.9.0.1")), pod(addressed("10.9.0.1"), labelled), true},
		"another node's ends":                    {Endpoint{UID: "other"}, pod(addressed("10.9.0.1")), pod(addressed("10.9.0.1"), ended), true},
		"one that has ended gets labels":         {Endpoint{UID: "other"}, pod(addressed("10.9.0.1"), ended), pod(addressed("10.9.0.1"), ended, labelled), false},
		"nothing":                                {web, pod(), pod(), false},
		"an address that a nameless sandbox has": {Endpoint{}, pod(), pod(addressed("10.0.0.1")), true},
		"it is a mirror":                         {Endpoint{UID: "other"}, nil, pod(mirrorOf("u2"), owned("Node", "n")), true},
	} {
		f := newFacts("n")
		f.connect(c.of)
		if c.old != nil {
			f.putPod("u1", c.old)
		}
		if got := f.setPod("u1", c.now); got != c.want {
			t.Errorf("%s: counts %v, want %v", name, got, c.want)
		}
	}
}
