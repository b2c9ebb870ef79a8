package fields

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// conditional are the fields of which something else in the specification says whether they are honoured.
func conditional(role Role, spec *v1.PodSpec, path *field.Path) (list []Refusal) {
	for at, c := range pods.ContainersAt(spec, path) {
		if at.Role != pods.Ephemeral { // what is asked here is nothing that an API server lets one have
			list = append(list, ofContainer(c, at.Path())...)
		}
	}
	for i, v := range spec.Volumes {
		path := path.Child("volumes").Index(i)
		if role == Agent {
			list = append(list, unknownSources(&v, path)...)
		}
		// On the disk it would take an eviction when the volume has outgrown it, and nobody evicts yet.
		if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && e.Medium != v1.StorageMediumMemory {
			list = append(list, Refusal{Path: path.Child("emptyDir", "sizeLimit"), Unless: "the medium is Memory"})
		}
	}
	return list
}

// unknownSources: API servers let no volume be without a source, so one that has none came with a kind that is newer than this agent.
func unknownSources(v *v1.Volume, path *field.Path) (list []Refusal) {
	const known = "its kind is one that this version knows"
	if v.VolumeSource == (v1.VolumeSource{}) {
		return []Refusal{{Path: path, Unless: known}}
	}
	if v.Projected != nil {
		for i, s := range v.Projected.Sources {
			if s == (v1.VolumeProjection{}) {
				list = append(list, Refusal{Path: path.Child("projected", "sources").Index(i), Unless: known})
			}
		}
	}
	return list
}

func ofContainer(c *v1.Container, path *field.Path) (list []Refusal) {
	// A request is counted when a pod is bound; a limit would take an eviction.
	if _, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok {
		list = append(list, Refusal{Path: path.Child("resources", "limits").Key(string(v1.ResourceEphemeralStorage))})
	}
	return list
}
