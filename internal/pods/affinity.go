package pods

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodTerm says which other pods one is to run near to, or far from. The term itself is the specification's own: who changes it changes the pod.
type PodTerm struct {
	*v1.PodAffinityTerm
	// Anti: far from them.
	Anti bool
	// Required: on no other node than one that is so.
	Required bool
	// Weight is how much it counts, from 1 to 100, if it is not required.
	Weight int32
	index  int
}

// PodTerms are the terms of a pod's affinity to other pods: those of podAffinity, then those of podAntiAffinity, the required ones first.
func PodTerms(spec *v1.PodSpec) iter.Seq[PodTerm] {
	return func(yield func(PodTerm) bool) {
		if !HasPodTerms(spec) {
			return
		}
		if near := spec.Affinity.PodAffinity; near != nil &&
			!terms(near.RequiredDuringSchedulingIgnoredDuringExecution, near.PreferredDuringSchedulingIgnoredDuringExecution, false, yield) {
			return
		}
		if far := spec.Affinity.PodAntiAffinity; far != nil {
			terms(far.RequiredDuringSchedulingIgnoredDuringExecution, far.PreferredDuringSchedulingIgnoredDuringExecution, true, yield)
		}
	}
}

// HasPodTerms says that a pod may have some of PodTerms. Most have none, and are asked often.
func HasPodTerms(spec *v1.PodSpec) bool {
	return spec.Affinity != nil && (spec.Affinity.PodAffinity != nil || spec.Affinity.PodAntiAffinity != nil)
}

func terms(required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm, anti bool, yield func(PodTerm) bool) bool {
	for i := range required {
		if !yield(PodTerm{PodAffinityTerm: &required[i], Anti: anti, Required: true, index: i}) {
			return false
		}
	}
	for i := range preferred {
		if !yield(PodTerm{PodAffinityTerm: &preferred[i].PodAffinityTerm, Anti: anti, Weight: preferred[i].Weight, index: i}) {
			return false
		}
	}
	return true
}

// Item is the path of what the term is a part of in its list, below that of the specification: of a required one it is the term.
func (t PodTerm) Item(spec *field.Path) *field.Path {
	kind, list := "podAffinity", "preferredDuringSchedulingIgnoredDuringExecution"
	if t.Anti {
		kind = "podAntiAffinity"
	}
	if t.Required {
		list = "requiredDuringSchedulingIgnoredDuringExecution"
	}
	return spec.Child("affinity", kind, list).Index(t.index)
}

// Path is the path of the term, below that of the specification.
func (t PodTerm) Path(spec *field.Path) *field.Path {
	if t.Required {
		return t.Item(spec)
	}
	return t.Item(spec).Child("podAffinityTerm")
}
