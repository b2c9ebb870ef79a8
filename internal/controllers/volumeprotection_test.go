package controllers_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/controllers/volumeprotection"
	"monopod.dev/monopod/test/apitest"
)

// TestVolumeProtection: a claim or a volume that is deleted goes at once when nothing uses it, and not while it is bound.
func TestVolumeProtection(t *testing.T) {
	api := apitest.Start(t)
	api.Control(catalog.ClaimProtection, catalog.VolumeProtection)
	ctx, core := t.Context(), api.Client.CoreV1()
	claims, volumes := core.PersistentVolumeClaims("default"), core.PersistentVolumes()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.AwaitGone(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "default", "c")

	v, err := volumes.Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: modes, Capacity: size, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v.Status.Phase = corev1.VolumeBound
	if _, err := volumes.UpdateStatus(ctx, v, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := volumes.Delete(ctx, "v", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	resource := corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	api.Await(resource, "", "v", "one that stays", func(o *metav1.PartialObjectMetadata) bool {
		return o != nil && o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, volumeprotection.VolumeFinalizer)
	})
	if v, err = volumes.Get(ctx, "v", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	v.Status.Phase = corev1.VolumeReleased
	if _, err := volumes.UpdateStatus(ctx, v, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	api.AwaitGone(resource, "", "v")
}

// TestVolumeAttributesProtection: a class of volumes' attributes that is deleted goes when nobody names it any more.
func TestVolumeAttributesProtection(t *testing.T) {
	api := apitest.Start(t)
	api.Control(catalog.AttributesProtection, catalog.ClaimProtection)
	ctx, claims, classes := t.Context(), api.Client.CoreV1().PersistentVolumeClaims("default"), api.Client.StorageV1().VolumeAttributesClasses()
	_, err := classes.Create(ctx, &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "example.com", Parameters: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeAttributesClassName: new("gold"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := classes.Delete(ctx, "gold", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	resource := storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses")
	api.Await(resource, "", "gold", "one that stays", func(o *metav1.PartialObjectMetadata) bool {
		return o != nil && o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, volumeprotection.AttributesFinalizer)
	})
	if err := claims.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.AwaitGone(resource, "", "gold")
}

// TestAPodThatOwnsItsClaim: it is deleted in the foreground, as the surplus pod of a stateful set is with its set, and waits for the claim that it owns. The claim goes
// once the node is done with the pod, and not before.
func TestAPodThatOwnsItsClaim(t *testing.T) {
	api := apitest.StartIn(t, "apps")
	api.Control(catalog.ClaimProtection, catalog.GarbageCollector)
	ctx, core := t.Context(), api.Client.CoreV1()
	pods, claims := core.Pods("apps"), core.PersistentVolumeClaims("apps")
	pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(ctx, "p", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	resource := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	api.Await(resource, "apps", "c", "deleted, and kept", func(o *metav1.PartialObjectMetadata) bool {
		return o != nil && o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, volumeprotection.ClaimFinalizer)
	})
	if err := pods.Delete(ctx, "p", *metav1.NewDeleteOptions(0)); err != nil { // as its agent does
		t.Fatal(err)
	}
	api.AwaitGone(resource, "apps", "c")
	api.AwaitGone(corev1.SchemeGroupVersion.WithResource("pods"), "apps", "p")
}
