package owned

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// some are random labels and selectors, few enough of each that many meet.
type some struct{ *rand.Rand }

func (s some) of(from ...string) string { return from[s.IntN(len(from))] }

func (s some) labels() map[string]string {
	if s.IntN(8) == 0 {
		return nil
	}
	m := map[string]string{}
	for range s.IntN(4) {
		m[s.of("a", "b", "c")] = s.of("", "1", "2")
	}
	return m
}

func (s some) selector() *metav1.LabelSelector {
	if s.IntN(8) == 0 {
		return nil
	}
	selector := &metav1.LabelSelector{MatchLabels: s.labels()}
	for s.IntN(3) == 0 {
		e := metav1.LabelSelectorRequirement{Key: s.of("a", "b", "c"), Operator: metav1.LabelSelectorOperator(s.of("In", "In", "NotIn", "Exists", "DoesNotExist"))}
		for strings.HasSuffix(string(e.Operator), "In") && (len(e.Values) == 0 || s.IntN(3) == 0) {
			e.Values = append(e.Values, s.of("", "1", "2"))
		}
		selector.MatchExpressions = append(selector.MatchExpressions, e)
	}
	return selector
}

// names says what is found, sorted.
func names[T any](all []T, name func(T) cache.ObjectName) string {
	var list []string
	for _, one := range all {
		list = append(list, name(one).String())
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestIndexesAreAsLookingAtAll: whatever comes, changes its labels or its selector, and goes, both indexes answer what a look at all does, and keep nothing of what is gone.
func TestIndexesAreAsLookingAtAll(t *testing.T) {
	for seed := range uint64(100) {
		s := some{rand.New(rand.NewPCG(seed, 5))}
		selectors, pods := NewSelectors(selectorOf), NewLabelled[*corev1.Pod]()
		told := 0
		next := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { told++ }, UpdateFunc: func(any, any) { told++ }, DeleteFunc: func(any) { told++ }}
		ofSets, ofPods := selectors.Keep(next), pods.Keep(next)
		allSets, allPods := map[cache.ObjectName]*appsv1.ReplicaSet{}, map[cache.ObjectName]*corev1.Pod{}
		for step := range 100 {
			m := metav1.ObjectMeta{Namespace: s.of("n", "m"), Name: fmt.Sprint(s.IntN(12)), Labels: s.labels()}
			name := cache.MetaObjectToName(&m)
			set, had := allSets[name]
			switch now := (&appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Selector: s.selector()}}); {
			case had && s.IntN(3) == 0:
				delete(allSets, name)
				ofSets.OnDelete(set)
			case had:
				allSets[name] = now
				ofSets.OnUpdate(set, now)
			default:
				allSets[name] = now
				ofSets.OnAdd(now, false)
			}
			pod, had := allPods[name]
			switch now := (&corev1.Pod{ObjectMeta: m}); {
			case had && s.IntN(3) == 0:
				delete(allPods, name)
				ofPods.OnDelete(cache.DeletedFinalStateUnknown{Key: name.String(), Obj: pod})
			case had:
				allPods[name] = now
				ofPods.OnUpdate(pod, now)
			default:
				allPods[name] = now
				ofPods.OnAdd(now, true)
			}
			if told != 2*(step+1) {
				t.Fatalf("seed %d: after %d events of each the next handlers have heard of %d", seed, step+1, told)
			}
			namespace, labels, selector := s.of("n", "m"), s.labels(), s.selector()
			var about []cache.ObjectName
			for name, set := range allSets {
				if name.Namespace == namespace && Selects(set.Spec.Selector, labels) {
					about = append(about, name)
				}
			}
			same := func(name cache.ObjectName) cache.ObjectName { return name }
			if got, want := names(selectors.About(namespace, labels), same), names(about, same); got != want {
				t.Fatalf("seed %d, step %d: of %v are %q, want %q", seed, step, labels, got, want)
			}
			var selected []*corev1.Pod
			for name, pod := range allPods {
				if name.Namespace == namespace && Selects(selector, pod.Labels) {
					selected = append(selected, pod)
				}
			}
			is := func(pod *corev1.Pod) cache.ObjectName { return cache.MetaObjectToName(pod) }
			if got, want := names(pods.Selected(namespace, selector), is), names(selected, is); got != want {
				t.Fatalf("seed %d, step %d: %v selects %q, want %q", seed, step, selector, got, want)
			}
			for _, pod := range pods.Selected(name.Namespace, &metav1.LabelSelector{}) {
				if allPods[is(pod)] != pod {
					t.Fatalf("seed %d, step %d: found is pod %s as it was before", seed, step, pod.Name)
				}
			}
		}
		for _, set := range allSets {
			ofSets.OnDelete(set)
		}
		for _, pod := range allPods {
			ofPods.OnDelete(pod)
		}
		if left := len(selectors.placed) + len(selectors.asked) + len(pods.objects) + len(pods.by); left > 0 {
			t.Fatalf("seed %d: %d entries are left of what is gone", seed, left)
		}
	}
}

// BenchmarkSelectors finds the one of so many sets of a namespace that a pod is of, by two labels of which they all have one.
func BenchmarkSelectors(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sets := NewSelectors(selectorOf)
			for i := range n {
				sets.Set(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint(i)},
					Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "instance": fmt.Sprint(i)}}}})
			}
			labels := map[string]string{"app": "web", "instance": fmt.Sprint(n / 2), "tier": "front"}
			b.ReportAllocs()
			for b.Loop() {
				if all := sets.About("n", labels); len(all) != 1 {
					b.Fatal(all)
				}
			}
		})
	}
}

// BenchmarkLabelled finds the one of so many pods of a namespace that has two labels, of which they all have one.
func BenchmarkLabelled(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pods := NewLabelled[*corev1.Pod]()
			for i := range n {
				pods.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint(i), Labels: map[string]string{"app": "web", "instance": fmt.Sprint(i)}}})
			}
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "instance": fmt.Sprint(n / 2)}}
			b.ReportAllocs()
			for b.Loop() {
				if all := pods.Selected("n", selector); len(all) != 1 {
					b.Fatal(all)
				}
			}
		})
	}
}

// newPods is an informer of pods that does not run, indexed by Index.
func newPods(t testing.TB) cache.SharedIndexInformer {
	t.Helper()
	informer := informers.NewSharedInformerFactory(nil, 0).Core().V1().Pods().Informer()
	if err := Index(informer); err != nil {
		t.Fatal(err)
	}
	return informer
}

// TestNoOrphanIsMissed: whatever pods there are and whatever an owner selects, it claims of what it looks at the same as of all pods.
func TestNoOrphanIsMissed(t *testing.T) {
	for seed := range uint64(100) {
		s := some{rand.New(rand.NewPCG(seed, 7))}
		informer := newPods(t)
		all := map[string]*corev1.Pod{}
		for range 60 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.of("n", "m"), Name: fmt.Sprint(s.IntN(20)), Labels: s.labels()}}
			if owner := s.of("", "", "me", "you"); owner != "" {
				p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: ptr.To(true)}}
			}
			key := p.Namespace + "/" + p.Name
			if old := all[key]; old != nil && s.IntN(3) == 0 {
				delete(all, key)
				if err := informer.GetIndexer().Delete(old); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if all[key] = p; informer.GetIndexer().Update(p) != nil {
				t.Fatal("a pod is not taken")
			}
			selector, err := metav1.LabelSelectorAsSelector(s.selector())
			if err != nil {
				t.Fatal(err)
			}
			owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "me", UID: "me"}}
			some, err := OfOrOrphans[*corev1.Pod](informer, owner, selector)
			if err != nil {
				t.Fatal(err)
			}
			is := func(pod *corev1.Pod) cache.ObjectName { return cache.MetaObjectToName(pod) }
			said := func(c Claims[*corev1.Pod]) string {
				return fmt.Sprintf("%s; adopt %s; release %s", names(c.Mine, is), names(c.Adopt, is), names(c.Release, is))
			}
			if got, want := said(Claim(owner, selector, some)), said(Claim(owner, selector, slices.Collect(maps.Values(all)))); got != want {
				t.Fatalf("seed %d: by %s it claims %s, want %s", seed, selector, got, want)
			}
		}
	}
}

// BenchmarkOfOrOrphans finds the pods that are an owner's, or could be, beside so many that nobody owns.
func BenchmarkOfOrOrphans(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			informer := newPods(b)
			for i := range n {
				if err := informer.GetIndexer().Add(pod(fmt.Sprint(i), fmt.Sprint("other-", i), "")); err != nil {
					b.Fatal(err)
				}
			}
			owner, selector := pod("me", "web", ""), labels.SelectorFromSet(labels.Set{"app": "web"})
			b.ReportAllocs()
			for b.Loop() {
				all, err := OfOrOrphans[*corev1.Pod](informer, owner, selector)
				if claims := Claim(owner, selector, all); err != nil || len(claims.Adopt) > 0 {
					b.Fatal(claims, err)
				}
			}
		})
	}
}
