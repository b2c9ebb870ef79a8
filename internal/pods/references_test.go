package pods

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestReferences(t *testing.T) {
	named := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	pod := &v1.Pod{}
	pod.Name = "web"
	pod.Spec = v1.PodSpec{
		InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("a")}}}}},
		Containers: []v1.Container{{
			EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("b")}}},
			Env: []v1.EnvVar{
				{Name: "X", Value: "1"},
				{Name: "Y", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("b")}}},
				{Name: "Z", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("c")}}},
			},
		}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
			EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("d")}}}}}},
		Volumes: []v1.Volume{
			{Name: "1", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: named("e")}}},
			{Name: "2", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "f"}}},
			{Name: "3", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: named("g")}}, {Secret: &v1.SecretProjection{LocalObjectReference: named("h")}},
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			}}}},
			{Name: "4", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "i"}}},
			{Name: "5", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
			{Name: "6", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		},
		ImagePullSecrets: []v1.LocalObjectReference{{}, named("j")},
	}
	want := []Reference{
		{Secret, "a"}, {ConfigMap, "b"}, {ConfigMap, "b"}, {Secret, "c"}, {Secret, "d"}, {ConfigMap, "e"}, {Secret, "f"}, {ConfigMap, "g"}, {Secret, "h"},
		{Claim, "i"}, {Claim, "web-5"}, {Secret, "j"},
	}
	if got := slices.Collect(References(pod)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for n := range want { // whoever has seen enough is not called again
		seen := 0
		for range References(pod) {
			if seen++; seen == n+1 {
				break
			}
		}
	}
}
