package garbage

import (
	"cmp"
	"slices"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// graph is what is known of all objects and of who owns whom, by UID. It keeps of an object only what is needed to decide that it may have to go: whether it
// has is asked of the API server then.
//
// A UID is one object's for all times. So who was seen to go is gone for good, and who is only named by others (an owner that no watch has shown)
// may be anywhere, or nowhere. Its methods tell which objects are to be looked at for what has changed.
type graph struct {
	mu    sync.Mutex
	nodes map[types.UID]*node
	// of are the objects of a kind that were seen, and naming those that name owners of one: what is found out about a kind is no work for the others.
	of     map[*kind]map[*node]struct{}
	naming map[named]map[*node]struct{}
}

// named is a kind as references name it.
type named struct{ apiVersion, kind string }

// object is where an object is.
type object struct {
	uid       types.UID
	kind      *kind
	namespace string // empty for objects in none
	name      string
}

// node is an object in the graph.
type node struct {
	object // without kind while nobody has seen it
	// gone: it was seen to go, and is here as long as objects name it as their owner.
	gone bool
	// deleting, foreground and orphan: its deletion has begun, and waits for its dependents to go, or to be orphaned.
	deleting, foreground, orphan bool
	owners                       []reference // sorted by UID: one object may name tens of thousands
	dependents                   map[*node]struct{}
	// blockers is how many dependents its deletion in the foreground waits for.
	blockers int
	// absent are the places where it was looked for, and is not.
	absent []place
}

// reference is one object's word that another one owns it.
type reference struct {
	uid              types.UID
	apiVersion, kind string
	name             string
	blocks           bool // the owner's deletion in the foreground waits for this one
}

// place is where a reference leads, from an object in a namespace.
type place struct{ apiVersion, kind, namespace, name string }

func newGraph() *graph {
	return &graph{nodes: map[types.UID]*node{}, of: map[*kind]map[*node]struct{}{}, naming: map[named]map[*node]struct{}{}}
}

// enter adds an object to those of a key, leave takes it from them.
func enter[K comparable](sets map[K]map[*node]struct{}, key K, n *node) {
	if sets[key] == nil {
		sets[key] = map[*node]struct{}{}
	}
	sets[key][n] = struct{}{}
}

func leave[K comparable](sets map[K]map[*node]struct{}, key K, n *node) {
	if delete(sets[key], n); len(sets[key]) == 0 {
		delete(sets, key)
	}
}

func (n *node) seen() bool { return n.kind != nil && !n.gone }

// is says that a reference from an object in a namespace leads to this object, which was seen.
func (n *node) is(r reference, from string) bool {
	return n.kind.is(r) && r.name == n.name && (n.namespace == "" || n.namespace == from)
}

// references are the owners of an object, once each, sorted by UID. Kinds are few, and are kept once.
func references(owners []metav1.OwnerReference) []reference {
	var all []reference
	for _, o := range owners {
		all = append(all, reference{uid: o.UID, apiVersion: unique.Make(o.APIVersion).Value(), kind: unique.Make(o.Kind).Value(), name: o.Name,
			blocks: o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion})
	}
	slices.SortStableFunc(all, func(a, b reference) int { return cmp.Compare(a.uid, b.uid) })
	once := all[:0]
	for _, r := range all {
		if last := len(once) - 1; last >= 0 && once[last].uid == r.uid {
			once[last].blocks = once[last].blocks || r.blocks
			continue
		}
		once = append(once, r)
	}
	return once
}

// to is the reference to an owner among those of an object.
func to(owner types.UID, owners []reference) (reference, bool) {
	i, found := slices.BinarySearchFunc(owners, owner, func(r reference, uid types.UID) int { return cmp.Compare(r.uid, uid) })
	if !found {
		return reference{}, false
	}
	return owners[i], true
}

// observe takes in an object as a watch shows it.
func (g *graph) observe(k *kind, m *metav1.PartialObjectMetadata) (look []types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.observeLocked(k, m)
}

func (g *graph) observeLocked(k *kind, m *metav1.PartialObjectMetadata) (look []types.UID) {
	n := g.node(m.UID)
	if n.gone {
		return nil // a watch that lags behind another one, of the same objects in another group
	}
	if !n.seen() {
		n.object = object{uid: n.uid, kind: k, namespace: unique.Make(m.Namespace).Value(), name: m.Name}
		n.absent = nil
		enter(g.of, k, n)
		for d := range n.dependents {
			if r, _ := to(n.uid, d.owners); !n.is(r, d.namespace) {
				look = append(look, d.uid) // it means another one
			}
		}
	}
	before := n.foreground
	n.deleting = m.DeletionTimestamp != nil
	n.foreground = n.deleting && slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents)
	n.orphan = n.deleting && slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)
	look = append(look, g.own(n, references(m.OwnerReferences))...)
	if n.foreground || n.orphan {
		look = append(look, n.uid)
	}
	// Its dependents are looked at when it begins to wait for them, and each one that comes later then: not all at each of its changes, which tell of
	// dependents that have gone.
	if n.foreground && !before {
		for d := range n.dependents {
			look = append(look, d.uid)
		}
	}
	return look
}

// node returns the node of a UID, which is made where there is none.
func (g *graph) node(uid types.UID) *node {
	n := g.nodes[uid]
	if n == nil {
		n = &node{object: object{uid: uid}}
		g.nodes[uid] = n
	}
	return n
}

// own gives an object its owners.
func (g *graph) own(n *node, owners []reference) (look []types.UID) {
	old := n.owners
	n.owners = owners
	for _, was := range old {
		leave(g.naming, named{was.apiVersion, was.kind}, n)
		owner := g.nodes[was.uid]
		if owner == nil {
			continue
		}
		now, still := to(was.uid, owners)
		if was.blocks && !now.blocks {
			if owner.blockers--; owner.blockers == 0 && owner.foreground {
				look = append(look, owner.uid) // it has waited for this one only
			}
		}
		if !still {
			delete(owner.dependents, n)
			g.forget(owner)
		}
	}
	for _, r := range owners {
		owner := g.node(r.uid)
		if owner.dependents == nil {
			owner.dependents = map[*node]struct{}{}
		}
		owner.dependents[n] = struct{}{}
		enter(g.naming, named{r.apiVersion, r.kind}, n)
		was, _ := to(r.uid, old)
		if r.blocks && !was.blocks {
			owner.blockers++
		}
		if was != r && (!owner.seen() || owner.foreground || !owner.is(r, n.namespace)) {
			look = append(look, n.uid)
		}
	}
	return look
}

// forget drops a node of which nobody speaks any more.
func (g *graph) forget(n *node) {
	if !n.seen() && len(n.dependents) == 0 {
		delete(g.nodes, n.uid)
	}
}

// remove takes in that an object has gone.
func (g *graph) remove(uid types.UID) (look []types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.nodes[uid]; n != nil {
		return g.removeLocked(n)
	}
	return nil
}

func (g *graph) removeLocked(n *node) (look []types.UID) {
	if n.seen() {
		leave(g.of, n.kind, n)
	}
	n.gone, n.absent = true, nil
	n.deleting, n.foreground, n.orphan = false, false, false
	look = g.own(n, nil)
	for d := range n.dependents {
		look = append(look, d.uid)
	}
	g.forget(n)
	return look
}

// replace takes in all objects of a kind that there are.
func (g *graph) replace(k *kind, all []*metav1.PartialObjectMetadata) (look []types.UID) {
	there := make(map[types.UID]bool, len(all))
	for _, m := range all {
		there[m.UID] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range g.of[k] {
		if !there[n.uid] {
			look = append(look, g.removeLocked(n)...)
		}
	}
	for _, m := range all {
		look = append(look, g.observeLocked(k, m)...)
	}
	// An owner of this kind that is not among them may have been there when it was asked for, and gone between two lists, with no watch to tell of it.
	this := named{k.gvk.GroupVersion().String(), k.gvk.Kind}
	for n := range g.naming[this] {
		if slices.ContainsFunc(n.owners, func(r reference) bool { return named{r.apiVersion, r.kind} == this && !g.nodes[r.uid].seen() }) {
			look = append(look, n.uid)
		}
	}
	return look
}

// lose takes in that nobody watches the objects of a kind any more: they may be anywhere, or nowhere.
func (g *graph) lose(k *kind) (look []types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range g.of[k] {
		look = append(look, g.own(n, nil)...)
		n.kind, n.deleting, n.foreground, n.orphan = nil, false, false, false
		for d := range n.dependents {
			look = append(look, d.uid)
		}
		g.forget(n)
	}
	delete(g.of, k)
	return look
}

// missing takes in that an owner is not where a reference leads.
func (g *graph) missing(owner types.UID, at place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.nodes[owner]; n != nil && !slices.Contains(n.absent, at) {
		n.absent = append(n.absent, at)
	}
}

// isMissing says that an owner is known not to be where a reference leads.
func (g *graph) isMissing(owner types.UID, at place) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[owner]
	return n != nil && (n.gone || slices.Contains(n.absent, at))
}

// isElsewhere says that an owner was seen, in another namespace.
func (g *graph) isElsewhere(owner types.UID, namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[owner]
	return n != nil && n.seen() && n.namespace != "" && n.namespace != namespace
}

// view is an object with what the graph knows of it.
type view struct {
	object
	deleting, foreground, orphan bool
	// owned: all its owners are there, as far as is known, and none waits for it.
	owned bool
	// waiting: its deletion in the foreground waits for dependents; stuck: it waits, over others that are deleted so too, for itself.
	waiting, stuck bool
	// dependents says that it owns others, circular that one of these waits for its own dependents, too: of an object that may have to go.
	dependents, circular bool
	// orphans are those that it owns and that its deletion leaves behind.
	orphans []object
}

// view returns an object that was seen. It walks the dependents only where something is done with each, or with the object itself: one that waits for many of
// them is looked at again and again.
func (g *graph) view(uid types.UID) (v view, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || !n.seen() {
		return view{}, false
	}
	v = view{object: n.object, deleting: n.deleting, foreground: n.foreground, orphan: n.orphan, owned: true, waiting: n.blockers > 0, dependents: len(n.dependents) > 0}
	for _, r := range n.owners {
		owner := g.nodes[r.uid]
		v.owned = v.owned && owner.seen() && !owner.foreground && owner.is(r, n.namespace)
	}
	switch {
	case v.foreground:
		v.stuck = v.waiting && n.awaitsItself()
	case v.orphan:
		for d := range n.dependents {
			v.orphans = append(v.orphans, d.object)
		}
	case !v.deleting && !v.owned:
		for d := range n.dependents {
			v.circular = v.circular || d.foreground
		}
	}
	return v, true
}

// awaitsItself says that an object whose deletion waits for dependents is among those that it waits for, by way of others that wait for theirs: none of them would
// ever go. A chain of owners ends at the first one that does not wait.
func (n *node) awaitsItself() bool {
	seen, next := map[*node]bool{}, []*node{n}
	for len(next) > 0 {
		owner := next[len(next)-1]
		next = next[:len(next)-1]
		for d := range owner.dependents {
			if !d.foreground || seen[d] {
				continue
			}
			if r, _ := to(owner.uid, d.owners); !r.blocks {
				continue
			}
			if d == n {
				return true
			}
			seen[d] = true
			next = append(next, d)
		}
	}
	return false
}

// kind is a kind of objects, and how the API server names their resource.
type kind struct {
	gvk        schema.GroupVersionKind
	gvr        schema.GroupVersionResource
	namespaced bool
}

// is says that a reference is to an object of this kind.
func (k *kind) is(r reference) bool {
	return r.kind == k.gvk.Kind && r.apiVersion == k.gvk.GroupVersion().String()
}
