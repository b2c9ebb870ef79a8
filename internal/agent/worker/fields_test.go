package worker

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNotHonoured(t *testing.T) {
	yes := true
	pod := &v1.Pod{Spec: v1.PodSpec{
		RuntimeClassName: new(string),
		HostUsers:        &yes,
		Containers: []v1.Container{{
			Name: "a", ReadinessProbe: &v1.Probe{}, Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}},
			VolumeMounts: []v1.VolumeMount{{Name: "v", SubPath: "x"}, {Name: "i", SubPath: "x"}},
		}},
		Volumes: []v1.Volume{
			{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "n", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}},
			{Name: "i", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "img"}}},
		},
	}}
	got := strings.Join(notHonoured(pod), " ")
	want := "spec.volumes[1].csi"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
