package storageindex

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// TestFound: pods are found by each of their claims, and volumes by the claim that they point at or else by their class.
func TestFound(t *testing.T) {
	known := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1()
	pods, volumes := known.Pods().Informer(), known.PersistentVolumes().Informer()
	for range 2 { // two controllers ask
		if err := Pods(pods); err != nil {
			t.Fatal(err)
		}
		if err := Volumes(volumes); err != nil {
			t.Fatal(err)
		}
	}
	of := func(claim string) corev1.Volume {
		return corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	}
	for _, pod := range []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{of("c"), of("d"), of("c")}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "q"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{of("d")}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "r"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{of("d")}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "none"}},
	} {
		if err := pods.GetIndexer().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	for claim, want := range map[string][]string{"c": {"p"}, "d": {"p", "q"}, "e": nil} {
		var got []string
		for _, pod := range PodsOf(pods, types.NamespacedName{Namespace: "a", Name: claim}) {
			got = append(got, pod.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("claim %s: %v, want %v", claim, got, want)
		}
	}
	for _, v := range []*corev1.PersistentVolume{
		{ObjectMeta: metav1.ObjectMeta{Name: "free"}, Spec: corev1.PersistentVolumeSpec{StorageClassName: "x"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "held"}, Spec: corev1.PersistentVolumeSpec{StorageClassName: "x", ClaimRef: &corev1.ObjectReference{Namespace: "a", Name: "c"}}},
	} {
		if err := volumes.GetIndexer().Add(v); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string][]string{FreeOf("x"): {"free"}, HeldFor("a", "c"): {"held"}, FreeOf("y"): nil} {
		got, err := volumes.GetIndexer().IndexKeys(ByTaker, key)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("volumes %s: %v, %v, want %v", key, got, err, want)
		}
	}
}
