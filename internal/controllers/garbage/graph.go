package garbage

import (
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
	owners                       []reference
	dependents                   map[*node]struct{}
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

// references are the owners of an object, once each. Kinds are few, and are kept once.
func references(owners []metav1.OwnerReference) []reference {
	var all []reference
	for _, o := range owners {
		r := reference{uid: o.UID, apiVersion: unique.Make(o.APIVersion).Value(), kind: unique.Make(o.Kind).Value(), name: o.Name,
			blocks: o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion}
		if i := slices.IndexFunc(all, func(a reference) bool { return a.uid == r.uid }); i >= 0 {
			all[i].blocks = all[i].blocks || r.blocks
			continue
		}
		all = append(all, r)
	}
	return all
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
			if !slices.ContainsFunc(d.owners, func(r reference) bool { return r.uid == n.uid && n.is(r, d.namespace) }) {
				look = append(look, d.uid) // it means another one
			}
		}
	}
	n.deleting = m.DeletionTimestamp != nil
	n.foreground = n.deleting && slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents)
	n.orphan = n.deleting && slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)
	look = append(look, g.own(n, references(m.OwnerReferences))...)
	if n.foreground || n.orphan {
		look = append(look, n.uid)
	}
	if n.foreground {
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
		i := slices.IndexFunc(owners, func(r reference) bool { return r.uid == was.uid })
		if owner := g.nodes[was.uid]; owner != nil {
			if owner.foreground && (i < 0 || was.blocks && !owners[i].blocks) {
				look = append(look, owner.uid) // it may have waited for this one only
			}
			if i < 0 {
				delete(owner.dependents, n)
				g.forget(owner)
			}
		}
	}
	for _, r := range owners {
		owner := g.node(r.uid)
		if owner.dependents == nil {
			owner.dependents = map[*node]struct{}{}
		}
		owner.dependents[n] = struct{}{}
		enter(g.naming, named{r.apiVersion, r.kind}, n)
		if !slices.Contains(old, r) && (!owner.seen() || owner.foreground || !owner.is(r, n.namespace)) {
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
	// dependents are those that it owns, blocking those for which its deletion waits and whose own does not wait for others yet; waiting: for some it does.
	dependents, blocking []object
	waiting              bool
	// circular: a dependent waits for its own dependents, too.
	circular bool
}

// view returns an object that was seen.
func (g *graph) view(uid types.UID) (v view, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || !n.seen() {
		return view{}, false
	}
	v = view{object: n.object, deleting: n.deleting, foreground: n.foreground, orphan: n.orphan, owned: true}
	for _, r := range n.owners {
		owner := g.nodes[r.uid]
		v.owned = v.owned && owner.seen() && !owner.foreground && owner.is(r, n.namespace)
	}
	for d := range n.dependents {
		v.dependents = append(v.dependents, d.object)
		v.circular = v.circular || d.foreground
		if slices.ContainsFunc(d.owners, func(r reference) bool { return r.uid == uid && r.blocks }) {
			v.waiting = true
			if !d.foreground {
				v.blocking = append(v.blocking, d.object)
			}
		}
	}
	return v, true
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
