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
func takers(n int) Takers[*appsv1.ReplicaSet] {
	all := NewTakers(selectorOf)
	for i := range n {
		name := fmt.Sprint("app-", i)
		all.selectors.Set(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}})
	}
	return all
}

func selectorOf(set *appsv1.ReplicaSet) *metav1.LabelSelector { return set.Spec.Selector }

func TestTakers(t *testing.T) {
	sets := takers(3)
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
		sets.selectors.Set(set)
	}
	var looked []string
	look := func(name cache.ObjectName) { looked = append(looked, name.Name) }
	sets.Look(pod("p", "app-1", ""), look)
	if slices.Sort(looked); strings.Join(looked, " ") != "app-1 some" {
		t.Errorf("looked at are %v", looked)
	}
	looked = nil
	bare := pod("p", "", "")
	bare.Labels = nil
	if sets.Look(bare, look); len(looked) > 0 {
		t.Errorf("for a pod without labels %v are looked at", looked)
	}
}

// BenchmarkTakers is a pod that nobody owns, beside so many sets that could take it over.
func BenchmarkTakers(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sets, p := takers(n), pod("p", "other", "")
			b.ReportAllocs()
			for b.Loop() {
				sets.Look(p, func(cache.ObjectName) { b.Fatal("nobody is to be looked at") })
			}
		})
	}
}
