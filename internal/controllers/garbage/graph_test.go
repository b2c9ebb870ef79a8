package garbage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	sets  = newKind("Set", "sets")
	parts = newKind("Part", "parts")
)

func newKind(name, resource string) *kind {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	return &kind{gvk: gv.WithKind(name), gvr: gv.WithResource(resource), namespaced: true}
}

// meta is an object whose name is its UID; its owners are sets, which it blocks.
func meta(uid types.UID, owners ...types.UID) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "ns", Name: string(uid)}}
	for _, o := range owners {
		yes := true
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Set", Name: string(o), UID: o, BlockOwnerDeletion: &yes})
	}
	return m
}

func deleting(m *metav1.PartialObjectMetadata, finalizer string) *metav1.PartialObjectMetadata {
	now := metav1.NewTime(time.Now())
	m.DeletionTimestamp, m.Finalizers = &now, []string{finalizer}
	return m
}

func expect(t *testing.T, what string, got []types.UID, want ...types.UID) {
	t.Helper()
	got = slices.Clone(got)
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("%s: looked at are %v, want %v", what, got, want)
	}
}

// TestGraph: who is to be looked at when something changes.
func TestGraph(t *testing.T) {
	g := newGraph()
	expect(t, "an owner that nobody has seen", g.observe(parts, meta("p1", "s1")), "p1")
	expect(t, "the same again", g.observe(parts, meta("p1", "s1")))
	expect(t, "the owner", g.observe(sets, meta("s1")))
	expect(t, "an owner that was seen", g.observe(parts, meta("p2", "s1")))
	if v, ok := g.view("p1"); !ok || !v.owned {
		t.Errorf("%+v", v)
	}
	expect(t, "the owner goes", g.remove("s1"), "p1", "p2")
	if v, _ := g.view("p1"); v.owned || !g.isMissing("s1", place{}) {
		t.Errorf("%+v", v)
	}
	expect(t, "one of an owner that has gone", g.observe(parts, meta("p3", "s1")), "p3")
	expect(t, "a watch that lags behind", g.observe(sets, meta("s1")))
	for _, p := range []types.UID{"p1", "p2", "p3"} {
		expect(t, "a dependent goes", g.remove(p))
	}
	if len(g.nodes) > 0 {
		t.Errorf("left are %v", g.nodes)
	}
}

func TestGraphInTheForeground(t *testing.T) {
	g := newGraph()
	g.observe(sets, meta("s1"))
	g.observe(parts, meta("p1", "s1"))
	g.observe(parts, meta("p2", "s1"))
	expect(t, "the deletion begins", g.observe(sets, deleting(meta("s1"), metav1.FinalizerDeleteDependents)), "p1", "p2", "s1")
	if v, _ := g.view("s1"); !v.foreground || !v.waiting || !v.dependents {
		t.Errorf("%+v", v)
	}
	if v, _ := g.view("p1"); v.owned {
		t.Error("an owner that waits for its dependents keeps them")
	}
	expect(t, "a new dependent", g.observe(parts, meta("p3", "s1")), "p3")
	unblocked := meta("p1", "s1")
	unblocked.OwnerReferences[0].BlockOwnerDeletion = nil
	// It is looked at, too, because its reference has changed.
	expect(t, "one blocks no more", g.observe(parts, unblocked), "p1")
	expect(t, "a change of the owner", g.observe(sets, deleting(meta("s1"), metav1.FinalizerDeleteDependents)), "s1")
	expect(t, "one goes", g.remove("p2"))
	if v, _ := g.view("s1"); !v.waiting {
		t.Errorf("%+v", v)
	}
	expect(t, "the last one is orphaned", g.observe(parts, meta("p3")), "s1")
	if v, _ := g.view("s1"); v.waiting || !v.dependents {
		t.Errorf("%+v", v)
	}
	expect(t, "one blocks again", g.observe(parts, meta("p1", "s1")), "p1")
	expect(t, "it goes", g.remove("p1"), "s1")
	if v, _ := g.view("s1"); v.waiting || v.dependents {
		t.Errorf("%+v", v)
	}
}

// TestGraphInACircle: two objects own each other, and one waits for the other.
func TestGraphInACircle(t *testing.T) {
	g := newGraph()
	g.observe(sets, meta("a", "b"))
	g.observe(sets, meta("b", "a"))
	expect(t, "the deletion begins", g.observe(sets, deleting(meta("a", "b"), metav1.FinalizerDeleteDependents)), "a", "b")
	if v, _ := g.view("b"); v.owned || !v.dependents || !v.circular {
		t.Errorf("%+v", v)
	}
	expect(t, "one goes", g.remove("b"), "a")
	expect(t, "and the other", g.remove("a"))
	if len(g.nodes) > 0 {
		t.Errorf("left are %v", g.nodes)
	}
	own := meta("c", "c")
	g.observe(sets, own)
	expect(t, "its own owner", g.observe(sets, deleting(own, metav1.FinalizerDeleteDependents)), "c")
	if v, _ := g.view("c"); !v.waiting || !v.stuck {
		t.Errorf("%+v", v)
	}
	if expect(t, "it goes", g.remove("c")); len(g.nodes) > 0 {
		t.Errorf("left are %v", g.nodes)
	}
}

// BenchmarkForeground is a deletion in the foreground: all dependents go, one after the other, and whatever is looked at is looked at.
func BenchmarkForeground(b *testing.B) {
	for _, dependents := range []int{10, 1000} {
		b.Run(fmt.Sprint(dependents), func(b *testing.B) {
			b.ReportAllocs()
			owner, gone := meta("s"), deleting(meta("s"), metav1.FinalizerDeleteDependents)
			var all []*metav1.PartialObjectMetadata
			for i := range dependents {
				all = append(all, meta(types.UID(fmt.Sprint(i)), "s"))
			}
			looked := 0
			for b.Loop() {
				g := newGraph()
				g.replace(sets, []*metav1.PartialObjectMetadata{owner})
				g.replace(parts, all)
				look := g.observe(sets, gone)
				for _, m := range all {
					look = append(look, g.remove(m.UID)...)
					look = append(look, g.observe(sets, gone)...) // its status counts them
				}
				for _, uid := range look {
					g.view(uid)
				}
				looked += len(look)
			}
			b.ReportMetric(float64(looked)/float64(b.N)/float64(dependents), "looks/dependent")
		})
	}
}

// BenchmarkOwners is an object that names so many owners, and changes.
func BenchmarkOwners(b *testing.B) {
	for _, owners := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(owners), func(b *testing.B) {
			var names []types.UID
			for i := range owners {
				names = append(names, types.UID(fmt.Sprint(i)))
			}
			m, g := meta("p", names...), newGraph()
			for b.Loop() {
				g.observe(parts, m)
			}
		})
	}
}

// TestGraphAfterAGap: what has gone, has come or has become another one while nobody watched.
func TestGraphAfterAGap(t *testing.T) {
	g := newGraph()
	g.observe(sets, meta("s1"))
	g.observe(sets, meta("s2"))
	g.observe(parts, meta("p1", "s1"))
	g.observe(parts, meta("p2", "s2"))
	g.observe(parts, meta("p3", "s3")) // nobody has seen s3
	expect(t, "all sets are listed", g.replace(sets, []*metav1.PartialObjectMetadata{meta("s2"), meta("s4")}), "p1", "p3")
	expect(t, "all parts are listed", g.replace(parts, []*metav1.PartialObjectMetadata{meta("p2", "s2")}))
	if len(g.nodes) != 3 {
		t.Errorf("left are %v", g.nodes)
	}
	expect(t, "nobody watches sets any more", g.lose(sets), "p2")
	expect(t, "and then somebody does", g.replace(sets, []*metav1.PartialObjectMetadata{meta("s2")}))
	if v, _ := g.view("p2"); !v.owned {
		t.Errorf("%+v", v)
	}
}

// TestGraphWithWrongWords: a reference has the UID of an owner, and says something else about it.
func TestGraphWithWrongWords(t *testing.T) {
	g := newGraph()
	wrong := meta("p1", "s1")
	wrong.OwnerReferences[0].Name = "other"
	far := meta("p2", "s1")
	far.Namespace = "far"
	g.observe(parts, wrong)
	g.observe(parts, far)
	expect(t, "the owner shows itself", g.observe(sets, meta("s1")), "p1", "p2")
	if !g.isElsewhere("s1", "far") || g.isElsewhere("s1", "ns") {
		t.Error("the namespace of an owner is not known")
	}
	at := place{"example.com/v1", "Set", "ns", "other"}
	g.missing("s1", at)
	if !g.isMissing("s1", at) || g.isMissing("s1", place{"example.com/v1", "Set", "ns", "s1"}) {
		t.Error("who is not in one place may be in another")
	}
}

// BenchmarkStart is a start: fifty kinds are listed one after the other, each with so many objects, which the objects of the next kind own.
func BenchmarkStart(b *testing.B) {
	for _, objects := range []int{10, 1000} {
		b.Run(fmt.Sprint(objects), func(b *testing.B) {
			var kinds []*kind
			var all [][]*metav1.PartialObjectMetadata
			for k := range 50 {
				kinds = append(kinds, newKind(fmt.Sprint("Kind", k), fmt.Sprint("kind", k)))
				var list []*metav1.PartialObjectMetadata
				for i := range objects {
					m := meta(types.UID(fmt.Sprint(k, "-", i)))
					owner := fmt.Sprint(k+1, "-", i)
					m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: fmt.Sprint("Kind", k+1), Name: owner, UID: types.UID(owner)}}
					list = append(list, m)
				}
				all = append(all, list)
			}
			for b.Loop() {
				g := newGraph()
				for k := range kinds {
					g.replace(kinds[k], all[k])
				}
			}
		})
	}
}
