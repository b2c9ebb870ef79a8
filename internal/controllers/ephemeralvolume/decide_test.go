package ephemeralvolume

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func bringing(volumes ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for _, name := range volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": name}, Annotations: map[string]string{"a": "b"}},
				Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			},
		}}})
	}
	return pod
}

// owned is a claim of a pod with a UID; none: nobody's.
func owned(name string, uid types.UID) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if uid != "" {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: uid, Controller: new(true)}}
	}
	return c
}

func TestDecide(t *testing.T) {
	goes := bringing("a")
	goes.DeletionTimestamp = &metav1.Time{}
	plain := bringing("a")
	plain.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		there []*corev1.PersistentVolumeClaim
		makes []string
		wrong []string
	}{
		"none is there":   {bringing("a", "b"), nil, []string{"p-a", "p-b"}, nil},
		"one is there":    {bringing("a", "b"), []*corev1.PersistentVolumeClaim{owned("p-a", "u")}, []string{"p-b"}, nil},
		"somebody else's": {bringing("a", "b"), []*corev1.PersistentVolumeClaim{owned("p-a", "")}, []string{"p-b"}, []string{"ephemeral volume a: PVC ns/p-a was not created for pod ns/p (pod is not owner)"}},
		"a former pod's":  {bringing("a"), []*corev1.PersistentVolumeClaim{owned("p-a", "former")}, nil, []string{"ephemeral volume a: PVC ns/p-a was not created for pod ns/p (pod is not owner)"}},
		"the pod goes":    {goes, nil, nil, nil},
		"another kind":    {plain, nil, nil, nil},
	} {
		needs, wrong := Decide(tc.pod, func(name string) *corev1.PersistentVolumeClaim {
			if i := slices.IndexFunc(tc.there, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == name }); i >= 0 {
				return tc.there[i]
			}
			return nil
		})
		var makes, said []string
		for _, n := range needs {
			makes = append(makes, n.Claim.Name)
			if c := n.Claim; c.Namespace != "ns" || c.Labels["of"] != n.Volume || c.Annotations["a"] != "b" || len(c.Spec.AccessModes) != 1 || !metav1.IsControlledBy(c, tc.pod) || !*c.OwnerReferences[0].BlockOwnerDeletion {
				t.Errorf("%s: the claim is %+v", name, c)
			}
		}
		for _, w := range wrong {
			said = append(said, w.Error())
		}
		if !slices.Equal(makes, tc.makes) || !slices.Equal(said, tc.wrong) {
			t.Errorf("%s: makes %v, says %q, want %v, %q", name, makes, said, tc.makes, tc.wrong)
		}
	}
}
