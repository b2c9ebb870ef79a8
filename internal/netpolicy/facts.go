package netpolicy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/netpolicy/compile"
)

// facts are what is known of the API's objects and of the node's network. It is for one goroutine at a time.
type facts struct {
	policies                                 map[types.NamespacedName]*networkingv1.NetworkPolicy
	namespaces                               map[string]compile.Namespace
	pods                                     map[types.UID]*podFact
	policiesKnown, namespacesKnown, podsKnow bool
	// learn: policies have changed since they were compiled, or it is not known which namespaces have.
	learn bool
	// relabelled are namespaces that have come, gone or changed their labels since then.
	relabelled map[string]bool
	// node is this node's name.
	node string
	// mirrors are mirror pods by the static pods that they show.
	mirrors map[staticPod]types.UID
	// endpoints are the sandboxes of this node's network. ofUID are those of a pod, and of the UID "" those of which nobody remembers it; at are those that have an address, and claims the pods
	// that do, as the API tells; as are those that were compiled as a pod.
	endpoints map[ids.SandboxID]*endpoint
	ofUID     index[types.UID, *endpoint]
	at        index[netip.Addr, *endpoint]
	claims    index[netip.Addr, types.UID]
	as        index[types.UID, *endpoint]
	news      news
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

// endpoint is a sandbox on the node's network.
type endpoint struct {
	Endpoint
	// kind is what was last known of its pod: it keeps that when the API forgets the pod before its sandbox is gone.
	kind *compile.Kind
	// as is the pod that it was compiled as; empty: none yet.
	as types.UID
	// settled: the rules in the kernel know its pod.
	settled bool
}

func newFacts(node string) facts {
	return facts{node: node, policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{}, learn: true, namespaces: map[string]compile.Namespace{}, relabelled: map[string]bool{},
		pods: map[types.UID]*podFact{}, claims: index[netip.Addr, types.UID]{}, mirrors: map[staticPod]types.UID{},
		endpoints: map[ids.SandboxID]*endpoint{}, ofUID: index[types.UID, *endpoint]{}, at: index[netip.Addr, *endpoint]{}, as: index[types.UID, *endpoint]{}, news: allNews()}
}

// needed says whether there is anything to enforce.
func (f *facts) needed() bool { return len(f.policies) > 0 && len(f.endpoints) > 0 }

// forget drops what is only watched while it is needed.
func (f *facts) forget() {
	f.namespaces, f.relabelled = map[string]compile.Namespace{}, map[string]bool{}
	f.forgetPods()
	f.namespacesKnown, f.podsKnow = false, false
}

func (f *facts) forgetPods() {
	f.pods, f.claims, f.mirrors, f.news = map[types.UID]*podFact{}, index[netip.Addr, types.UID]{}, map[staticPod]types.UID{}, allNews()
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
	f.takePod(uid)
	f.pods[uid] = fact
	for _, a := range fact.addresses {
		f.claims.add(a, uid)
	}
	if fact.mirrorOf != (staticPod{}) {
		f.mirrors[fact.mirrorOf] = uid
	}
	f.podNews(uid, fact)
}

// counts says whether rules may follow from what is new of a pod; nil: it was not known before.
func (f *facts) counts(uid types.UID, old, now *podFact) bool {
	if len(f.ofUID[""]) > 0 {
		return old == nil || !old.same(now) // they are found by their addresses
	}
	connected := len(f.ofUID[uid]) > 0
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
	if f.pods[uid] == nil {
		return false
	}
	f.takePod(uid)
	return true
}

// takePod forgets a pod.
func (f *facts) takePod(uid types.UID) {
	old := f.pods[uid]
	if old == nil {
		return
	}
	f.podNews(uid, old)
	delete(f.pods, uid)
	for _, a := range old.addresses {
		f.claims.drop(a, uid)
	}
	if f.mirrors[old.mirrorOf] == uid { // the one of its name that came after it may show the same
		delete(f.mirrors, old.mirrorOf)
	}
}

// connect notes a sandbox, in the place of one of its ID.
func (f *facts) connect(of Endpoint) {
	f.disconnect(of.SandboxID)
	e := &endpoint{Endpoint: of}
	f.endpoints[of.SandboxID] = e
	f.ofUID.add(of.UID, e)
	for _, a := range of.Addresses {
		f.at.add(a, e)
	}
	f.sandboxNews(e)
}

func (f *facts) disconnect(id ids.SandboxID) {
	e := f.endpoints[id]
	if e == nil {
		return
	}
	f.sandboxNews(e)
	f.compiledAs(e, "")
	delete(f.endpoints, id)
	f.ofUID.drop(e.UID, e)
	for _, a := range e.Addresses {
		f.at.drop(a, e)
	}
	delete(f.news.unsettled, e)
}

// podOf is the pod of a sandbox, as the API has it: the one of its UID, and another only where there is none and that is the mirror of a static pod.
func (f *facts) podOf(e *endpoint) types.UID {
	if e.UID == "" {
		return f.podAt(e.Addresses)
	}
	if f.pods[e.UID] == nil {
		if mirror, ok := f.mirrors[e.static()]; ok {
			return mirror
		}
	}
	return e.UID
}

// podAt is the pod of this node that has an address, of several the same one each time.
func (f *facts) podAt(addresses []netip.Addr) (first types.UID) {
	for _, a := range addresses {
		for uid := range f.claims[a] {
			if p := f.pods[uid]; !p.gone && p.here && (first == "" || uid < first) {
				first = uid
			}
		}
		if first != "" {
			break
		}
	}
	return first
}

// static is the static pod that a sandbox may be of.
func (e *Endpoint) static() staticPod { return staticPod{e.UID, e.Namespace, e.Name} }
