package fields

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// conditional are the fields of which something else in the specification says whether they are honoured.
func conditional(role Role, spec *v1.PodSpec, path *field.Path) (refused []Refusal) {
	lists := []struct {
		name       string
		containers []v1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}}
	for _, list := range lists {
		for i := range list.containers {
			refused = append(refused, ofContainer(spec, &list.containers[i], path.Child(list.name).Index(i))...)
		}
	}
	for i, v := range spec.Volumes {
		path := path.Child("volumes").Index(i)
		if role == Agent {
			refused = append(refused, unknownSources(&v, path)...)
		}
		// On the disk it would take an eviction when the volume has outgrown it, and nobody evicts yet.
		if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && e.Medium != v1.StorageMediumMemory {
			refused = append(refused, Refusal{Path: path.Child("emptyDir", "sizeLimit"), Unless: "the medium is Memory"})
		}
	}
	return refused
}

// unknownSources: API servers let no volume be without a source, so one that has none came with a kind that is newer than this agent.
func unknownSources(v *v1.Volume, path *field.Path) (refused []Refusal) {
	const known = "its kind is one that this version knows"
	if v.VolumeSource == (v1.VolumeSource{}) {
		return []Refusal{{Path: path, Unless: known}}
	}
	if v.Projected != nil {
		for i, s := range v.Projected.Sources {
			if s == (v1.VolumeProjection{}) {
				refused = append(refused, Refusal{Path: path.Child("projected", "sources").Index(i), Unless: known})
			}
		}
	}
	return refused
}

func ofContainer(spec *v1.PodSpec, c *v1.Container, path *field.Path) (refused []Refusal) {
	// A request is counted when a pod is bound; a limit would take an eviction.
	if _, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok {
		refused = append(refused, Refusal{Path: path.Child("resources", "limits").Key(string(v1.ResourceEphemeralStorage))})
	}
	for i, m := range c.VolumeMounts {
		if m.SubPath == "" {
			continue
		}
		known := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name })
		if known >= 0 && spec.Volumes[known].Image == nil {
			refused = append(refused, Refusal{Path: path.Child("volumeMounts").Index(i).Child("subPath"), Unless: "the volume is an image"})
		}
	}
	return refused
}
