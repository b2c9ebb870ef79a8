package netpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// node is this node's name.
	node string
	// mirrors are mirror pods by the static pods that they show.
	mirrors   map[staticPod]types.UID
	endpoints map[string]*endpoint
}

// staticPod is a pod that the API does not have itself: a kubelet on this node has made it, and shows it by another of the same name.
type staticPod struct {
	uid             types.UID
	namespace, name string
}

// podFact is what is kept of a pod.
type podFact struct {
	kind      *compile.Kind
	addresses []netip.Addr
	// gone: it has ended, or is on the host's network: its addresses say nothing of it.
	gone bool
	// here: it is bound to this node.
	here bool
	// mirrorOf is the static pod of this node that it shows.
	mirrorOf staticPod
}

// endpoint is a sandbox on the bridge.
type endpoint struct {
	Endpoint
	// kind is what was last known of its pod: it keeps that when the API forgets the pod before its sandbox is gone.
	kind *compile.Kind
}

func newFacts(node string) facts {
	return facts{node: node, policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{}, endpoints: map[string]*endpoint{}, learn: true,
		namespaces: map[string]compile.Namespace{}, pods: map[types.UID]*podFact{}, mirrors: map[staticPod]types.UID{}}
}

// needed says whether there is anything to enforce.
func (f *facts) needed() bool { return len(f.policies) > 0 && len(f.endpoints) > 0 }

// forget drops what is only watched while it is needed.
func (f *facts) forget() {
	f.namespaces, f.pods, f.mirrors = map[string]compile.Namespace{}, map[types.UID]*podFact{}, map[staticPod]types.UID{}
	f.namespacesKnown, f.podsKnow = false, false
}

// factOf is what is kept of a pod, on the node of this name.
func factOf(p *corev1.Pod, node string) *podFact {
	f := &podFact{kind: compile.KindOf(p), here: p.Spec.NodeName != "" && p.Spec.NodeName == node, mirrorOf: mirrored(p, node)}
	f.gone = p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			f.addresses = append(f.addresses, a.Unmap())
		}
	}
	return f
}

// mirrored is the static pod that p shows. Whoever makes pods writes their annotations: only what a kubelet of this node can have made says something of a
// sandbox here. It has the name of the static pod, is bound to the node and owned by it.
func mirrored(p *corev1.Pod, node string) (of staticPod) {
	uid := types.UID(p.Annotations[corev1.MirrorPodAnnotationKey])
	owner := metav1.GetControllerOfNoCopy(p)
	if uid == "" || p.Spec.NodeName == "" || p.Spec.NodeName != node || owner == nil {
		return of
	}
	if owner.APIVersion != corev1.SchemeGroupVersion.String() || owner.Kind != "Node" || owner.Name != node {
		return of
	}
	return staticPod{uid, p.Namespace, p.Name}
}

func (f *podFact) same(o *podFact) bool {
	return f.kind.Same(o.kind) && slices.Equal(f.addresses, o.addresses) && f.gone == o.gone && f.here == o.here && f.mirrorOf == o.mirrorOf
}

// setPod notes a pod, and says whether anything follows from it that did not before. While a pod starts its object changes a few times, most of which say nothing that
// its sandbox has not told already: rules are not compiled for those.
func (f *facts) setPod(uid types.UID, fact *podFact) bool {
	old := f.pods[uid]
	f.putPod(uid, fact)
	return f.counts(uid, old, fact)
}

// putPod notes a pod.
func (f *facts) putPod(uid types.UID, fact *podFact) {
	if old := f.pods[uid]; old != nil {
		f.dropMirror(uid, old)
	}
	f.pods[uid] = fact
	if fact.mirrorOf != (staticPod{}) {
		f.mirrors[fact.mirrorOf] = uid
	}
}

// counts says whether rules may follow from what is new of a pod; nil: it was not known before.
func (f *facts) counts(uid types.UID, old, now *podFact) bool {
	connected := false
	for _, e := range f.endpoints {
		if e.UID == "" {
			return old == nil || !old.same(now) // it is found by its address
		}
		connected = connected || types.UID(e.UID) == uid
	}
	switch {
	case old != nil && old.same(now):
		return false
	case now.mirrorOf != (staticPod{}) || old != nil && old.mirrorOf != (staticPod{}):
		return true
	case connected: // its addresses are its sandbox's
		return old == nil || !old.kind.Same(now.kind)
	case old == nil:
		return len(now.reached()) > 0
	}
	return !slices.Equal(old.reached(), now.reached()) || len(now.reached()) > 0 && !old.kind.Same(now.kind)
}

// reached are the addresses that say something of it.
func (f *podFact) reached() []netip.Addr {
	if f.gone {
		return nil
	}
	return f.addresses
}

func (f *facts) dropPod(uid types.UID) bool {
	old := f.pods[uid]
	if old == nil {
		return false
	}
	delete(f.pods, uid)
	f.dropMirror(uid, old)
	return true
}

// dropMirror forgets that a pod shows another, unless the one of its name that came after it does.
func (f *facts) dropMirror(uid types.UID, fact *podFact) {
	if f.mirrors[fact.mirrorOf] == uid {
		delete(f.mirrors, fact.mirrorOf)
	}
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
			if !p.gone && p.here && (byAddress[a] == "" || uid < byAddress[a]) { // the same one each time
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

// podOf is the pod of a sandbox, as the API has it: the one of its UID, and another only where there is none and that is the mirror of a static pod.
func (f *facts) podOf(e *endpoint, byAddress map[netip.Addr]types.UID) types.UID {
	uid := types.UID(e.UID)
	if uid == "" {
		for _, a := range e.Addresses {
			if uid = byAddress[a]; uid != "" {
				break
			}
		}
		return uid
	}
	if f.pods[uid] == nil {
		if mirror, ok := f.mirrors[e.static()]; ok {
			return mirror
		}
	}
	return uid
}

// static is the static pod that a sandbox may be of.
func (e *Endpoint) static() staticPod { return staticPod{types.UID(e.UID), e.Namespace, e.Name} }
