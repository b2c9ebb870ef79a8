package registry_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/registry/persistentvolume"
	"monopod.dev/monopod/internal/apiserver/registry/persistentvolumeclaim"
)

func TestTablesOfVolumesAndClaims(t *testing.T) {
	born := metav1.NewTime(time.Now().Add(-3*time.Hour - time.Second))
	meta := metav1.ObjectMeta{Name: "x", CreationTimestamp: born}
	leaving := meta
	leaving.DeletionTimestamp = &born
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadOnlyMany, corev1.ReadWriteOnce, corev1.ReadWriteOnce}
	volumes := &corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{
		{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: "Retain", StorageClassName: "c",
			ClaimRef: &corev1.ObjectReference{Namespace: "a", Name: "b"}, VolumeMode: new(corev1.PersistentVolumeBlock), VolumeAttributesClassName: new("g")},
			Status: corev1.PersistentVolumeStatus{Phase: "Bound", Reason: "r"}},
		{ObjectMeta: leaving, Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}}},
	}}
	want := "NAME|CAPACITY|ACCESS MODES|RECLAIM POLICY|STATUS|CLAIM|STORAGECLASS|VOLUMEATTRIBUTESCLASS|REASON|AGE|VOLUMEMODE\n" +
		"x|1Gi|RWO,ROX,RWX|Retain|Bound|a/b|c|g|r|3h|Block\nx|0|RWOP||Terminating|||<unset>||3h|<unset>"
	if got := render(t, persistentvolume.Resource().Table(), volumes, true); got != want {
		t.Errorf("volumes:\n%s\nwant:\n%s", got, want)
	}
	claims := &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{
		{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v", StorageClassName: new("c"), VolumeMode: new(corev1.PersistentVolumeFilesystem)},
			Status: corev1.PersistentVolumeClaimStatus{Phase: "Bound", Capacity: size, AccessModes: modes}},
		{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: new("g")}, Status: corev1.PersistentVolumeClaimStatus{Phase: "Pending", Capacity: size}},
		{ObjectMeta: leaving},
	}}
	want = "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES|STORAGECLASS|VOLUMEATTRIBUTESCLASS|AGE|VOLUMEMODE\n" +
		"x|Bound|v|1Gi|RWO,ROX,RWX|c|<unset>|3h|Filesystem\nx|Pending|||||g|3h|<unset>\nx|Terminating|||||<unset>|3h|<unset>"
	if got := render(t, persistentvolumeclaim.Resource().Table(), claims, true); got != want {
		t.Errorf("claims:\n%s\nwant:\n%s", got, want)
	}
}
