package pods

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestPodTerms(t *testing.T) {
	term := func(key string) v1.PodAffinityTerm { return v1.PodAffinityTerm{TopologyKey: key} }
	spec := &v1.PodSpec{Affinity: &v1.Affinity{
		PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  []v1.PodAffinityTerm{term("a"), term("b")},
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 7, PodAffinityTerm: term("c")}},
		},
		PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  []v1.PodAffinityTerm{term("d")},
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{PodAffinityTerm: term("e")}},
		},
	}}
	want := []string{
		"a 0 spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]",
		"b 0 spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1]",
		"c 7 spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm",
		"d 0 spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]",
		"e 0 spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm",
	}
	for n := range len(want) + 1 {
		var got []string
		for term := range PodTerms(spec) {
			if len(got) == n { // whoever has seen enough is given no more
				break
			}
			got = append(got, fmt.Sprint(term.TopologyKey, " ", term.Weight, " ", term.Path(field.NewPath("spec"))))
		}
		if !slices.Equal(got, want[:n]) {
			t.Errorf("the first %d: %q, want %q", n, got, want[:n])
		}
	}
	for name, spec := range map[string]*v1.PodSpec{"no affinity": {}, "none to pods": {Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}}} {
		for range PodTerms(spec) {
			t.Errorf("%s: there is a term", name)
		}
		if HasPodTerms(spec) {
			t.Errorf("%s: there may be terms", name)
		}
	}
}
