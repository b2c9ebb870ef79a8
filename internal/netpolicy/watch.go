package netpolicy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// feed brings what is watched into the facts: a reflector writes to it, and nothing is kept beside the facts.
type feed[T runtime.Object] struct {
	// set and drop note one object, and say whether that is news; replace notes all.
	set, drop func(T) bool
	replace   func([]T)
	// slim leaves of an object what set looks at.
	slim func(T) T
	news func()
	stop func()
}

// client lists and watches objects of all namespaces.
type client[T runtime.Object, L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// start has a reflector write to the feed until stop or the end of ctx.
func start[T, L runtime.Object](ctx context.Context, of client[T, L], origin any, empty T, f *feed[T]) *feed[T] {
	ctx, cancel := context.WithCancel(ctx)
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) },
		WatchFuncWithContext: of.Watch,
	}, origin), empty, f, cache.ReflectorOptions{Name: "network policies"})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reflector.RunWithContext(ctx)
	}()
	f.stop = func() {
		cancel()
		<-ended
	}
	return f
}

// Transformer implements cache.TransformingStore.
func (f *feed[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		one, ok := obj.(T)
		if !ok || f.slim == nil {
			return obj, nil
		}
		return f.slim(one), nil
	}
}

// Add implements cache.ReflectorStore.
func (f *feed[T]) Add(obj any) error { return f.one(obj, f.set) }

// Update implements cache.ReflectorStore.
func (f *feed[T]) Update(obj any) error { return f.one(obj, f.set) }

// Delete implements cache.ReflectorStore.
func (f *feed[T]) Delete(obj any) error { return f.one(obj, f.drop) }

func (f *feed[T]) one(obj any, note func(T) bool) error {
	one, ok := obj.(T)
	if !ok {
		return fmt.Errorf("a watch has sent a %T", obj)
	}
	if note(one) {
		f.news()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *feed[T]) Replace(objs []any, _ string) error {
	all := make([]T, 0, len(objs))
	for _, obj := range objs {
		one, ok := obj.(T)
		if !ok {
			return fmt.Errorf("a list holds a %T", obj)
		}
		all = append(all, one)
	}
	f.replace(all)
	f.news()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*feed[T]) Resync() error { return nil }

// watchPolicies watches policies for as long as the role runs.
func (r *Role) watchPolicies(ctx context.Context) *feed[*networkingv1.NetworkPolicy] {
	// note changes the facts, and tells those who wait: without policies nobody has to.
	note := func(f func()) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
		r.facts.learn = true
		r.announce()
		return true
	}
	return start(ctx, r.client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll), r.client, &networkingv1.NetworkPolicy{}, &feed[*networkingv1.NetworkPolicy]{
		set: func(p *networkingv1.NetworkPolicy) bool {
			return note(func() { r.facts.policies[policyKey(p)] = p })
		},
		drop: func(p *networkingv1.NetworkPolicy) bool {
			return note(func() { delete(r.facts.policies, policyKey(p)) })
		},
		replace: func(all []*networkingv1.NetworkPolicy) {
			note(func() {
				clear(r.facts.policies)
				for _, p := range all {
					r.facts.policies[policyKey(p)] = p
				}
				r.facts.policiesKnown = true
			})
		},
		slim: func(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
			p.ManagedFields = nil
			return p
		},
		news: r.poke,
	})
}

// feeds are what is watched while there is anything to enforce.
type feeds struct {
	namespaces *feed[*corev1.Namespace]
	pods       *feed[*corev1.Pod]
}

func (r *Role) startFeeds(ctx context.Context) {
	r.feeds = &feeds{
		namespaces: start(ctx, r.client.CoreV1().Namespaces(), r.client, &corev1.Namespace{}, r.namespaceFeed()),
		pods:       start(ctx, r.client.CoreV1().Pods(metav1.NamespaceAll), r.client, &corev1.Pod{}, r.podFeed()),
	}
}

// stopFeeds ends what startFeeds began, and forgets what came of it.
func (r *Role) stopFeeds() {
	if r.feeds == nil {
		return
	}
	r.feeds.namespaces.stop()
	r.feeds.pods.stop()
	r.feeds = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.forget()
}

func (r *Role) namespaceFeed() *feed[*corev1.Namespace] {
	set := func(n *corev1.Namespace) bool {
		old, known := r.facts.namespaces[n.Name]
		if known && sameLabels(old.Labels, n.Labels) {
			return false
		}
		r.facts.namespaces[n.Name] = compile.Namespace{Name: n.Name, Labels: n.Labels}
		r.facts.relabelled[n.Name] = true
		return true
	}
	return &feed[*corev1.Namespace]{
		set: func(n *corev1.Namespace) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return set(n)
		},
		drop: func(n *corev1.Namespace) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.facts.namespaces, n.Name)
			r.facts.relabelled[n.Name] = true
			return true
		},
		replace: func(all []*corev1.Namespace) {
			r.mu.Lock()
			defer r.mu.Unlock()
			clear(r.facts.namespaces)
			for _, n := range all {
				set(n)
			}
			clear(r.facts.relabelled) // all are learned
			r.facts.namespacesKnown, r.facts.learn = true, true
		},
		slim: func(n *corev1.Namespace) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels}}
		},
		news: r.poke,
	}
}

func sameLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if got, ok := b[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func (r *Role) podFeed() *feed[*corev1.Pod] {
	return &feed[*corev1.Pod]{
		set: func(p *corev1.Pod) bool {
			fact := factOf(p, r.facts.node)
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.facts.setPod(p.UID, fact)
		},
		drop: func(p *corev1.Pod) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.facts.dropPod(p.UID)
		},
		replace: func(all []*corev1.Pod) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.facts.forgetPods()
			for _, p := range all {
				r.facts.putPod(p.UID, factOf(p, r.facts.node))
			}
			r.facts.podsKnow = true
		},
		slim: slimPod,
		news: r.poke,
	}
}

// slimPod is of a pod what is looked at: of what waits to be written to the facts, too, no more is kept.
func slimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels},
		Spec:       corev1.PodSpec{HostNetwork: p.Spec.HostNetwork, NodeName: p.Spec.NodeName},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}
	if of, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: of}
		out.OwnerReferences = p.OwnerReferences
	}
	ports := func(list []corev1.Container) (all []corev1.Container) {
		for _, c := range list {
			all = append(all, corev1.Container{RestartPolicy: c.RestartPolicy, Ports: c.Ports})
		}
		return all
	}
	out.Spec.InitContainers, out.Spec.Containers = ports(p.Spec.InitContainers), ports(p.Spec.Containers)
	return out
}
