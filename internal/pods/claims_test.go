package pods

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestClaims: a claim that is in two volumes of a pod is one claim.
func TestClaims(t *testing.T) {
	of := func(name string) corev1.Volume {
		return corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		of("b"), {Name: "empty"}, of("a"), {Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}, of("b"), of("p-v"),
	}}}
	name := func(name string, own bool) ClaimName {
		return ClaimName{types.NamespacedName{Namespace: "ns", Name: name}, own}
	}
	if got, want := Claims(pod), []ClaimName{name("b", false), name("a", false), name("p-v", true), name("p-v", false)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Claims(&corev1.Pod{}); got != nil {
		t.Errorf("a pod without volumes has %v", got)
	}
}
