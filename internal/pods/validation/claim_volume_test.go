package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, StorageClassName: new("local"), VolumeMode: new(corev1.PersistentVolumeFilesystem),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// brings makes the last volume of a pod one that it brings along.
func brings(s *corev1.PodSpec, change func(*corev1.PersistentVolumeClaimTemplate)) {
	t := &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b c"}}, Spec: claimSpec()}
	change(t)
	s.Volumes[2].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: t}}
}

func claims(s *corev1.PodSpec, name string) {
	s.Volumes[2].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: true}}
}

func TestClaimVolumes(t *testing.T) {
	const v = "spec.volumes[2]."
	const at = v + "ephemeral.volumeClaimTemplate"
	run(t, map[string]specCase{
		"a claim":                {func(s *corev1.PodSpec) { claims(s, "c") }, nil},
		"a claim without a name": {func(s *corev1.PodSpec) { claims(s, "") }, []string{v + "persistentVolumeClaim.claimName: Required value"}},
		"brought along":          {func(s *corev1.PodSpec) { brings(s, func(*corev1.PersistentVolumeClaimTemplate) {}) }, nil},
		"brought along, of nothing": {func(s *corev1.PodSpec) {
			s.Volumes[2].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
		}, []string{at + ": Required value"}},
		"brought along, with a name": {func(s *corev1.PodSpec) {
			brings(s, func(t *corev1.PersistentVolumeClaimTemplate) { t.Name, t.Finalizers = "n", []string{"a/b"} })
		}, []string{at + ".metadata.name: Forbidden: cannot be set", at + ".metadata.finalizers: Forbidden: cannot be set"}},
		"brought along, labels": {func(s *corev1.PodSpec) {
			brings(s, func(t *corev1.PersistentVolumeClaimTemplate) {
				t.Labels, t.Annotations = map[string]string{"a": "b c"}, map[string]string{"a b": ""}
			})
		}, []string{at + ".metadata.annotations: Invalid value", at + ".metadata.labels: Invalid value"}},
		"brought along, wrong": {func(s *corev1.PodSpec) {
			brings(s, func(t *corev1.PersistentVolumeClaimTemplate) {
				t.Spec.AccessModes, t.Spec.Resources.Requests = nil, nil
			})
		}, []string{at + ".spec.accessModes: Required value: at least 1 access mode is required", at + ".spec.resources[storage]: Required value"}},
		"brought along, from elsewhere": {func(s *corev1.PodSpec) {
			brings(s, func(t *corev1.PersistentVolumeClaimTemplate) {
				t.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "d", Namespace: new("ns")}
			})
		}, []string{at + ".spec.dataSourceRef.namespace: Forbidden: " + NotSupported}},
		"both": {func(s *corev1.PodSpec) {
			brings(s, func(*corev1.PersistentVolumeClaimTemplate) {})
			s.Volumes[2].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}
		}, []string{v + "ephemeral: Forbidden: may not specify more than 1 volume type"}},
	})
}

// The names of claims that a pod brings along follow from its own.
func TestEphemeralClaims(t *testing.T) {
	pod := validPod()
	brings(&pod.Spec, func(*corev1.PersistentVolumeClaimTemplate) {})
	at := field.NewPath("spec", "volumes")
	if errs := EphemeralClaims(pod, at); len(errs) > 0 {
		t.Errorf("of a pod as it should be: %v", errs)
	}
	pod.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-host"}}
	if got := lines(EphemeralClaims(pod, at)); len(got) != 1 || got[0] != `spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: must not reference a PVC that gets created for an ephemeral volume` {
		t.Errorf("of a pod that names its own: %q", got)
	}
	claims(&pod.Spec, "c")
	brings(&pod.Spec, func(*corev1.PersistentVolumeClaimTemplate) {})
	pod.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "c"
	pod.Name = strings.Repeat("a", 250)
	if got := lines(EphemeralClaims(pod, at)); len(got) != 1 || !strings.HasPrefix(got[0], `spec.volumes[2].name: Invalid value: PVC name "`+pod.Name+`-host": must be no more than 253`) {
		t.Errorf("of a pod with a long name: %q", got)
	}
}
