package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const mebi = 1 << 20

func emptyDir(name, limit string, medium v1.StorageMedium) v1.Volume {
	e := &v1.EmptyDirVolumeSource{Medium: medium}
	if limit != "" {
		q := resource.MustParse(limit)
		e.SizeLimit = &q
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: e}}
}

func container(name, limit string) v1.Container {
	c := v1.Container{Name: name}
	if limit != "" {
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	return c
}

func TestExceeded(t *testing.T) {
	sidecar := container("s", "1Mi")
	always := v1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	for name, c := range map[string]struct {
		spec v1.PodSpec
		used Used
		want string
	}{
		"no limits": {v1.PodSpec{Volumes: []v1.Volume{emptyDir("d", "", "")}, Containers: []v1.Container{container("a", "")}},
			Used{Volumes: map[string]uint64{"d": 1 << 40}, Containers: map[string]uint64{"a": 1 << 40}}, ""},
		"a volume at its limit": {v1.PodSpec{Volumes: []v1.Volume{emptyDir("d", "1Mi", "")}}, Used{Volumes: map[string]uint64{"d": mebi}}, ""},
		"a volume over it": {v1.PodSpec{Volumes: []v1.Volume{emptyDir("other", "1Gi", ""), emptyDir("d", "1Mi", "")}},
			Used{Volumes: map[string]uint64{"d": mebi + 1, "other": mebi}}, `Usage of EmptyDir volume "d" exceeds the limit "1Mi". `},
		"a limit of zero is none":       {v1.PodSpec{Volumes: []v1.Volume{emptyDir("d", "0", "")}}, Used{Volumes: map[string]uint64{"d": mebi}}, ""},
		"in memory the kernel holds it": {v1.PodSpec{Volumes: []v1.Volume{emptyDir("d", "1Mi", v1.StorageMediumMemory)}}, Used{Volumes: map[string]uint64{"d": 2 * mebi}}, ""},
		"all together": {v1.PodSpec{Containers: []v1.Container{container("a", "1Mi"), container("b", "1Mi")}},
			Used{Containers: map[string]uint64{"a": mebi, "b": mebi}, Other: 1}, "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
		"volumes without a limit count for the pod": {v1.PodSpec{Containers: []v1.Container{container("a", "1Mi")}},
			Used{Volumes: map[string]uint64{"d": mebi + 1}}, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
		"one of two": {v1.PodSpec{Containers: []v1.Container{container("a", "1Mi"), container("b", "3Mi")}},
			Used{Containers: map[string]uint64{"a": 2 * mebi}}, `Container a exceeded its local ephemeral storage limit "1Mi". `},
		"a sidecar": {v1.PodSpec{InitContainers: []v1.Container{sidecar}, Containers: []v1.Container{container("a", "3Mi")}},
			Used{Containers: map[string]uint64{"s": 2 * mebi}}, `Container s exceeded its local ephemeral storage limit "1Mi". `},
		"a size that is no number of this machine": {v1.PodSpec{Containers: []v1.Container{container("a", "100Ei")}}, Used{Containers: map[string]uint64{"a": 1 << 60}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Exceeded(&v1.Pod{Spec: c.spec}, &c.used)
			if (got == nil) != (c.want == "") || got != nil && (got.Message != c.want || got.Reason != "Evicted" || got.Phase != v1.PodFailed || got.Condition == nil) {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
}

func TestLimitsOf(t *testing.T) {
	for name, c := range map[string]struct {
		spec v1.PodSpec
		want Limits
	}{
		"none":     {v1.PodSpec{Volumes: []v1.Volume{emptyDir("d", "", ""), emptyDir("m", "1Mi", v1.StorageMediumMemory)}, Containers: []v1.Container{container("a", "")}}, Limits{}},
		"volumes":  {v1.PodSpec{Volumes: []v1.Volume{emptyDir("d", "1Mi", "")}}, Limits{Volumes: true}},
		"init too": {v1.PodSpec{InitContainers: []v1.Container{container("i", "1Mi")}}, Limits{Containers: true}},
	} {
		if got := LimitsOf(&v1.Pod{Spec: c.spec}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
