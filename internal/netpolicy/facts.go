package netpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// facts are what is known of the API's objects and of the bridge. It is for one goroutine at a time.
type facts struct {
	policies                                 map[types.NamespacedName]*networkingv1.NetworkPolicy
	namespaces                               map[string]compile.Namespace
	pods                                     map[types.UID]*podFact
	policiesKnown, namespacesKnown, podsKnow bool
	// learn: policies or namespaces have changed since they were compiled.
	learn bool
	// mirrors are mirror pods by the UIDs of the static pods that they show.
	mirrors   map[types.UID]types.UID
	endpoints map[string]*endpoint
}

// podFact is what is kept of a pod.
type podFact struct {
	kind      *compile.Kind
	addresses []netip.Addr
	// gone: it has ended, or is on the host's network: its addresses say nothing of it.
	gone bool
	// mirrorOf is the static pod that it shows.
	mirrorOf types.UID
}

// endpoint is a sandbox on the bridge.
type endpoint struct {
	Endpoint
	// kind is what was last known of its pod: it keeps that when the API forgets the pod before its sandbox is gone.
	kind *compile.Kind
}

func newFacts() facts {
	return facts{policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{}, endpoints: map[string]*endpoint{}, learn: true,
		namespaces: map[string]compile.Namespace{}, pods: map[types.UID]*podFact{}, mirrors: map[types.UID]types.UID{}}
}

// needed says whether there is anything to enforce.
func (f *facts) needed() bool { return len(f.policies) > 0 && len(f.endpoints) > 0 }

// forget drops what is only watched while it is needed.
func (f *facts) forget() {
	f.namespaces, f.pods, f.mirrors = map[string]compile.Namespace{}, map[types.UID]*podFact{}, map[types.UID]types.UID{}
	f.namespacesKnown, f.podsKnow = false, false
}

// factOf is what is kept of a pod.
func factOf(p *corev1.Pod) *podFact {
	f := &podFact{kind: compile.KindOf(p), mirrorOf: types.UID(p.Annotations[corev1.MirrorPodAnnotationKey])}
	f.gone = p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			f.addresses = append(f.addresses, a.Unmap())
		}
	}
	return f
}

func (f *podFact) same(o *podFact) bool {
	return f.kind.Same(o.kind) && slices.Equal(f.addresses, o.addresses) && f.gone == o.gone && f.mirrorOf == o.mirrorOf
}

// setPod notes a pod, and says whether anything about it is new.
func (f *facts) setPod(uid types.UID, fact *podFact) bool {
	if old := f.pods[uid]; old != nil {
		if old.same(fact) {
			return false
		}
		delete(f.mirrors, old.mirrorOf)
	}
	f.pods[uid] = fact
	if fact.mirrorOf != "" {
		f.mirrors[fact.mirrorOf] = uid
	}
	return true
}

func (f *facts) dropPod(uid types.UID) bool {
	old := f.pods[uid]
	if old == nil {
		return false
	}
	delete(f.pods, uid)
	if f.mirrors[old.mirrorOf] == uid {
		delete(f.mirrors, old.mirrorOf)
	}
	return true
}

// view is what rules are compiled of.
type view struct {
	policies   []*networkingv1.NetworkPolicy
	namespaces []compile.Namespace
	learn      bool
	pods       []compile.Pod
	// settled are the sandboxes whose pods are known.
	settled map[string]bool
}

// view is what is known now; whole says that it is all there is.
func (f *facts) view() (v view, whole bool) {
	if !f.policiesKnown || !f.namespacesKnown || !f.podsKnow {
		return v, false
	}
	v = view{policies: slices.Collect(maps.Values(f.policies)), learn: f.learn, settled: map[string]bool{}}
	if f.learn {
		v.namespaces = slices.Collect(maps.Values(f.namespaces))
		f.learn = false
	}
	byAddress := map[netip.Addr]types.UID{} // for sandboxes of which nobody remembers the pod
	for uid, p := range f.pods {
		for _, a := range p.addresses {
			if !p.gone {
				byAddress[a] = uid
			}
		}
	}
	held, here := map[netip.Addr]bool{}, map[types.UID]bool{}
	var local []compile.Pod
	for id, e := range f.endpoints {
		for _, a := range e.Addresses {
			held[a] = true
		}
		uid := f.podOf(e, byAddress)
		if p := f.pods[uid]; p != nil {
			e.kind = p.kind
		}
		if e.kind == nil {
			continue // nobody knows whose it is: nothing passes
		}
		here[uid], v.settled[id] = true, true
		local = append(local, compile.Pod{UID: id, Kind: e.kind, Addresses: e.Addresses, Local: true, Port: e.Interface})
	}
	for uid, p := range f.pods {
		if p.gone || here[uid] {
			continue
		}
		remote := compile.Pod{UID: string(uid), Kind: p.kind}
		for _, a := range p.addresses {
			if !held[a] {
				remote.Addresses = append(remote.Addresses, a)
			}
		}
		if len(remote.Addresses) > 0 {
			v.pods = append(v.pods, remote)
		}
	}
	// Of two pods that claim an address the same one has it each time.
	slices.SortFunc(v.pods, func(a, b compile.Pod) int { return cmp.Compare(a.UID, b.UID) })
	v.pods = append(v.pods, local...)
	return v, true
}

// podOf is the pod of a sandbox, as the API has it.
func (f *facts) podOf(e *endpoint, byAddress map[netip.Addr]types.UID) types.UID {
	uid := types.UID(e.UID)
	if mirror, ok := f.mirrors[uid]; ok && uid != "" {
		return mirror
	}
	if uid == "" {
		for _, a := range e.Addresses {
			if uid = byAddress[a]; uid != "" {
				break
			}
		}
	}
	return uid
}
