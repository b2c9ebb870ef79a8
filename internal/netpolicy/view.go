package netpolicy

import (
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/netpolicy/compile"
)

// news are what may have changed since rules were compiled: they are compiled of that, and what they cost does not grow with what has not changed.
type news struct {
	// all: nothing of what was compiled is sure to hold, and nothing else is noted.
	all       bool
	pods      map[types.UID]bool
	sandboxes map[ids.SandboxID]bool
	// unsettled are sandboxes that were compiled, and that the rules in the kernel may not know yet.
	unsettled map[*endpoint]bool
}

func allNews() news {
	return news{all: true, pods: map[types.UID]bool{}, sandboxes: map[ids.SandboxID]bool{}, unsettled: map[*endpoint]bool{}}
}

// podNews notes that a pod comes, changes or goes: what it was and what it is are told one after the other.
func (f *facts) podNews(uid types.UID, fact *podFact) {
	if f.news.all {
		return
	}
	f.news.pods[uid] = true
	for _, of := range []types.UID{uid, fact.mirrorOf.uid} {
		if of == "" {
			continue
		}
		for e := range f.ofUID[of] {
			f.news.sandboxes[e.SandboxID] = true
		}
	}
	for _, a := range fact.addresses {
		for e := range f.at[a] {
			if e.UID == "" {
				f.news.sandboxes[e.SandboxID] = true
			}
		}
	}
}

// sandboxNews notes that a sandbox comes or goes: pods that claim its addresses lose or gain them.
func (f *facts) sandboxNews(e *endpoint) {
	if f.news.all {
		return
	}
	f.news.sandboxes[e.SandboxID] = true
	for _, a := range e.Addresses {
		for uid := range f.claims[a] {
			f.news.pods[uid] = true
		}
	}
}

// compiledAs notes as which pod a sandbox is compiled: what else is known of that one does not count then.
func (f *facts) compiledAs(e *endpoint, uid types.UID) {
	if e.as == uid {
		return
	}
	for _, changed := range []types.UID{e.as, uid} {
		if changed != "" && !f.news.all {
			f.news.pods[changed] = true
		}
	}
	f.as.drop(e.as, e)
	if e.as = uid; uid != "" {
		f.as.add(uid, e)
	}
}

// view is what rules are compiled of.
type view struct {
	// learn: policies have changed, and these are all policies and namespaces. Otherwise namespaces are those that have come or changed, and those of the names without have gone.
	learn      bool
	policies   []*networkingv1.NetworkPolicy
	namespaces []compile.Namespace
	without    []string
	// all: come are all pods there are. Otherwise come are those that have come or changed since the last view, and those of the keys gone have gone.
	all  bool
	come []compile.Pod
	gone []string
}

// view is what is new; whole says that all is known that there is, and that the next view begins from here.
func (f *facts) view() (v view, whole bool) {
	if !f.policiesKnown || !f.namespacesKnown || !f.podsKnow {
		return v, false
	}
	if f.learn {
		v.learn, v.policies, v.namespaces = true, slices.Collect(maps.Values(f.policies)), slices.Collect(maps.Values(f.namespaces))
		clear(f.relabelled) // they are among them
	}
	for name := range f.relabelled {
		if n, is := f.namespaces[name]; is {
			v.namespaces = append(v.namespaces, n)
		} else {
			v.without = append(v.without, name)
		}
	}
	clear(f.relabelled)
	if v.all = f.learn || f.news.all; v.all {
		f.news.all = false
		for id := range f.endpoints {
			f.news.sandboxes[id] = true
		}
		for uid := range f.pods {
			f.news.pods[uid] = true
		}
	}
	f.learn = false
	for id := range f.news.sandboxes { // before pods, of which they make more news
		if local, is := f.local(f.endpoints[id]); is {
			v.come = append(v.come, local)
		} else {
			v.gone = append(v.gone, string(id))
		}
	}
	for uid := range f.news.pods {
		if remote, is := f.remote(uid); is {
			v.come = append(v.come, remote)
		} else {
			v.gone = append(v.gone, string(uid))
		}
	}
	clear(f.news.sandboxes)
	clear(f.news.pods)
	return v, true
}

// local is a sandbox as rules see it. Of one of which nobody knows whose it is they know nothing, and nothing passes.
func (f *facts) local(e *endpoint) (compile.Pod, bool) {
	if e == nil {
		return compile.Pod{}, false
	}
	uid := f.podOf(e)
	if p := f.pods[uid]; p != nil {
		e.kind = p.kind
	}
	if e.kind == nil {
		return compile.Pod{}, false
	}
	f.compiledAs(e, uid)
	if !e.settled {
		f.news.unsettled[e] = true
	}
	return compile.Pod{Key: string(e.SandboxID), Kind: e.kind, Addresses: e.Addresses, Local: true}, true
}

// remote is a pod as rules see it that has no sandbox here, at those addresses that no sandbox has.
func (f *facts) remote(uid types.UID) (compile.Pod, bool) {
	p := f.pods[uid]
	if p == nil || p.gone || len(f.as[uid]) > 0 {
		return compile.Pod{}, false
	}
	remote := compile.Pod{Key: string(uid), Kind: p.kind}
	for _, a := range p.addresses {
		if len(f.at[a]) == 0 {
			remote.Addresses = append(remote.Addresses, a)
		}
	}
	return remote, len(remote.Addresses) > 0
}

// settle notes that the rules in the kernel are those of the last view.
func (f *facts) settle() {
	for e := range f.news.unsettled {
		e.settled = true
	}
	clear(f.news.unsettled)
}

// unsettle notes that there are no rules in the kernel.
func (f *facts) unsettle() {
	for _, e := range f.endpoints {
		e.settled = false
	}
	f.news = allNews()
}

// index are the values of keys, each once.
type index[K, V comparable] map[K]map[V]struct{}

func (x index[K, V]) add(key K, value V) {
	if x[key] == nil {
		x[key] = map[V]struct{}{}
	}
	x[key][value] = struct{}{}
}

func (x index[K, V]) drop(key K, value V) {
	if delete(x[key], value); len(x[key]) == 0 {
		delete(x, key)
	}
}
