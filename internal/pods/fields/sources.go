package fields

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// unknownSources are volumes without a source: API servers let none be, so one that has none came with a kind that is newer than this agent.
func unknownSources(spec *v1.PodSpec, path *field.Path) (list []Refusal) {
	const known = "its kind is one that this version knows"
	for i, v := range spec.Volumes {
		at := path.Child("volumes").Index(i)
		if v.VolumeSource == (v1.VolumeSource{}) {
			list = append(list, Refusal{Path: at, Unless: known})
			continue
		}
		if v.Projected == nil {
			continue
		}
		for k, s := range v.Projected.Sources {
			if s == (v1.VolumeProjection{}) {
				list = append(list, Refusal{Path: at.Child("projected", "sources").Index(k), Unless: known})
			}
		}
	}
	return list
}
