package binder

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// book knows which pods have their place on which node, and what they hold there together: those that the watch shows, and those that were bound and that the
// watch does not show yet. Without the latter the next pod would be given the same resources again. What is held is not reckoned anew for each decision: so a
// decision costs no more where many pods are.
type book struct {
	mu    sync.Mutex
	pods  map[types.UID]*held
	nodes map[string]*holdings
	// claims are how many of these pods have a claim.
	claims map[types.NamespacedName]int
}

// held is a pod that has its place on a node.
type held struct {
	*corev1.Pod
	node string
	// requests are what it has of the node (allocated.Held).
	requests corev1.ResourceList
	// shown: the watch shows it there.
	shown bool
	at    int // in holdings.pods
}

// holdings are the pods of a node, and what they hold.
type holdings struct {
	// pods are in no order.
	pods []*corev1.Pod
	// used is what they request together.
	used corev1.ResourceList
	// Those that ask for devices, with what they request; who say something about other pods; and who have ports of the host.
	devices, social, ports map[*held]struct{}
}

func newHoldings() *holdings {
	return &holdings{used: corev1.ResourceList{}, devices: map[*held]struct{}{}, social: map[*held]struct{}{}, ports: map[*held]struct{}{}}
}

// holdingsOf are those of pods that no book is kept of.
func holdingsOf(all []*corev1.Pod) *holdings {
	h := newHoldings()
	for _, pod := range all {
		h.add(&held{Pod: pod, requests: allocated.Held(pod)})
	}
	return h
}

// add gives a pod its place. Which devices a pod requests, its ports and its terms never change.
func (h *holdings) add(of *held) {
	of.at = len(h.pods)
	h.pods = append(h.pods, of.Pod)
	h.use(of.requests)
	for name := range of.requests {
		if isDevice(name) {
			h.devices[of] = struct{}{}
		}
	}
	if pods.HasPodTerms(&of.Spec) {
		h.social[of] = struct{}{}
	}
	if len(pods.HostPorts(&of.Spec)) > 0 {
		h.ports[of] = struct{}{}
	}
}

// renew notes that a pod has changed, and says whether it has less than before.
func (h *holdings) renew(of *held) (less bool) {
	h.pods[of.at] = of.Pod
	now := allocated.Held(of.Pod)
	for name, had := range of.requests {
		less = less || had.Cmp(now[name]) > 0
	}
	h.free(of.requests)
	of.requests = now
	h.use(now)
	return less
}

// remove takes a pod's place. moved is told of the one that has its index then.
func (h *holdings) remove(of *held, moved func(types.UID, int)) {
	last := len(h.pods) - 1
	h.pods[of.at] = h.pods[last]
	moved(h.pods[of.at].UID, of.at)
	h.pods[last] = nil
	h.pods = h.pods[:last]
	h.free(of.requests)
	delete(h.devices, of)
	delete(h.social, of)
	delete(h.ports, of)
}

func (h *holdings) use(requests corev1.ResourceList) {
	for name, quantity := range requests {
		sum := h.used[name]
		sum.Add(quantity)
		h.used[name] = sum
	}
}

func (h *holdings) free(requests corev1.ResourceList) {
	for name, quantity := range requests {
		sum := h.used[name]
		sum.Sub(quantity)
		h.used[name] = sum
	}
}

// assume notes that a pod is on its way to a node.
func (b *book) assume(pod *corev1.Pod, node string) {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(pod, false)
}

// show notes a pod as the watch shows it on its node, and says whether it has less of that than before.
func (b *book) show(pod *corev1.Pod) (less bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.put(pod, true)
}

func (b *book) put(pod *corev1.Pod, shown bool) (less bool) {
	if of := b.pods[pod.UID]; of != nil {
		if of.shown && !shown {
			return false
		}
		if of.node == pod.Spec.NodeName {
			of.Pod, of.shown = pod, shown
			return b.nodes[of.node].renew(of)
		}
		b.take(of) // somebody else has bound it to another one
	}
	of := &held{Pod: pod, node: pod.Spec.NodeName, requests: allocated.Held(pod), shown: shown}
	if b.pods == nil {
		b.pods, b.nodes, b.claims = map[types.UID]*held{}, map[string]*holdings{}, map[types.NamespacedName]int{}
	}
	h := b.nodes[of.node]
	if h == nil {
		h = newHoldings()
		b.nodes[of.node] = h
	}
	b.pods[pod.UID] = of
	for _, claim := range pods.Claims(pod) {
		b.claims[claim.NamespacedName]++
	}
	h.add(of)
	return false
}

// fail notes that a pod could not be bound, unless the watch shows that it was: then it says false.
func (b *book) fail(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.pods[uid]
	if of == nil || of.shown {
		return false
	}
	b.take(of)
	return true
}

// remove notes that a pod has gone or ended, and returns it with the node that it was on; nil: it had no place.
func (b *book) remove(uid types.UID) (pod *corev1.Pod, node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.pods[uid]
	if of == nil {
		return nil, ""
	}
	b.take(of)
	return of.Pod, of.node
}

func (b *book) take(of *held) {
	delete(b.pods, of.UID)
	for _, claim := range pods.Claims(of.Pod) {
		if b.claims[claim.NamespacedName]--; b.claims[claim.NamespacedName] == 0 {
			delete(b.claims, claim.NamespacedName)
		}
	}
	h := b.nodes[of.node]
	h.remove(of, func(uid types.UID, at int) {
		if moved := b.pods[uid]; moved != nil {
			moved.at = at
		}
	})
	if len(h.pods) == 0 {
		delete(b.nodes, of.node)
	}
}

func (b *book) has(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[uid] != nil
}

// look lets somebody see what is on nodes. They may keep nothing of it.
func (b *book) look(nodes []*corev1.Node, see func([]place)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	places := make([]place, len(nodes))
	for i, node := range nodes {
		places[i] = place{node: node, holds: b.nodes[node.Name]}
		if places[i].holds == nil {
			places[i].holds = newHoldings()
		}
		places[i].pods = places[i].holds.pods
	}
	see(places)
}
