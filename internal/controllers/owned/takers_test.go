package owned

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// takers are so many sets of a namespace, each for pods of an application of its own.
func takers(t testing.TB, n int) cache.Indexer {
	t.Helper()
	all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for i := range n {
		name := fmt.Sprint("app-", i)
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}}
		if err := all.Add(set); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func selectorOf(set *appsv1.ReplicaSet) *metav1.LabelSelector { return set.Spec.Selector }

func TestTakers(t *testing.T) {
	sets := takers(t, 3)
	for name, change := range map[string]func(*appsv1.ReplicaSet){
		"all":     func(s *appsv1.ReplicaSet) { s.Spec.Selector = &metav1.LabelSelector{} }, // an empty one is no reason to take over all pods
		"nothing": func(s *appsv1.ReplicaSet) { s.Spec.Selector = nil },
		"some": func(s *appsv1.ReplicaSet) {
			s.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
		},
		"elsewhere": func(s *appsv1.ReplicaSet) {
			s.Namespace, s.Spec.Selector = "m", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app-1"}}
		},
	} {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		change(set)
		if err := sets.Add(set); err != nil {
			t.Fatal(err)
		}
	}
	var looked []string
	look := func(name cache.ObjectName) { looked = append(looked, name.Name) }
	if err := Takers(sets, pod("p", "app-1", ""), selectorOf, look); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(looked); strings.Join(looked, " ") != "app-1 some" {
		t.Errorf("looked at are %v", looked)
	}
	looked = nil
	bare := pod("p", "", "")
	bare.Labels = nil
	if err := Takers(sets, bare, selectorOf, look); err != nil || len(looked) > 0 {
		t.Errorf("for a pod without labels %v are looked at, %v", looked, err)
	}
}

// BenchmarkTakers is a pod that nobody owns, beside so many sets that could take it over.
func BenchmarkTakers(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sets, p := takers(b, n), pod("p", "other", "")
			b.ReportAllocs()
			for b.Loop() {
				if err := Takers(sets, p, selectorOf, func(cache.ObjectName) { b.Fatal("nobody is to be looked at") }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
