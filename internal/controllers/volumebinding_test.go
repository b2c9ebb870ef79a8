package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/apitest"
)

var (
	claimsResource  = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	volumesResource = corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	eventsResource  = corev1.SchemeGroupVersion.WithResource("events")
)

// storage makes volumes and claims at an API server.
type storage struct {
	*apitest.API
	claims  typedcorev1.PersistentVolumeClaimInterface
	volumes typedcorev1.PersistentVolumeInterface
}

func startStorage(t testing.TB) *storage {
	a := apitest.Start(t)
	core := a.Client.CoreV1()
	return &storage{a, core.PersistentVolumeClaims("default"), core.PersistentVolumes()}
}

// claim makes a claim of 1 Gi.
func (w *storage) claim(name string, changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	for _, change := range changes {
		change(c)
	}
	c, err := w.claims.Create(w.Context(), c, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func ofClass(class string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }
}

// volume makes a volume of 2 Gi.
func (w *storage) volume(name string, changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	w.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/" + name}},
	}}
	for _, change := range changes {
		change(v)
	}
	v, err := w.volumes.Create(w.Context(), v, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return v
}

func reclaimDeletes(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}

func classed(class string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = class }
}

func (w *storage) class(name, provisioner string, mode storagev1.VolumeBindingMode, annotations map[string]string) {
	w.Helper()
	_, err := w.Client.StorageV1().StorageClasses().Create(w.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Provisioner: provisioner, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// becomes waits until a claim is in a phase.
func (w *storage) becomes(name string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	w.Helper()
	return w.claimIs(name, string(phase), func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == phase })
}

func (w *storage) claimIs(name, what string, is func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	w.Helper()
	return apitest.Become(w.API, claimsResource, "default", w.claims, name, what, is, func(c *corev1.PersistentVolumeClaim) string { return fmt.Sprintf("%+v", c) })
}

// enters waits until a volume is in a phase.
func (w *storage) enters(name string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	w.Helper()
	return apitest.Become(w.API, volumesResource, "", w.volumes, name, string(phase), func(v *corev1.PersistentVolume) bool { return v.Status.Phase == phase },
		func(v *corev1.PersistentVolume) string { return fmt.Sprintf("%+v", v) })
}

// told waits for an event of an object.
func (w *storage) told(name, reason, message string) {
	w.Helper()
	var seen []string
	w.AwaitChange(func(ctx context.Context) bool {
		list, err := w.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			w.Fatal(err)
		}
		seen = nil
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, message) && e.Source.Component == "persistentvolume-controller" {
				return true
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return false
	}, func() string { return fmt.Sprintf("%s is not told %s: %s, but %q", name, reason, message, seen) }, eventsResource, "")
}

func boundTo(t testing.TB, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
	t.Helper()
	if c.Spec.VolumeName != v.Name || c.Annotations["pv.kubernetes.io/bind-completed"] != "yes" || c.Status.Capacity.Storage().Cmp(*v.Spec.Capacity.Storage()) != 0 ||
		!slices.Equal(c.Status.AccessModes, v.Spec.AccessModes) {
		t.Errorf("the claim is %+v", c)
	}
	if ref := v.Spec.ClaimRef; ref == nil || ref.UID != c.UID || ref.Name != c.Name || ref.Namespace != "default" || ref.Kind != "PersistentVolumeClaim" || ref.APIVersion != "v1" {
		t.Errorf("the volume is %+v", v)
	}
}

// TestVolumesLife: a volume that a person has made, from being free to being free again.
func TestVolumesLife(t *testing.T) {
	w := startStorage(t)
	w.Control(catalog.VolumeBinding, catalog.ClaimProtection, catalog.VolumeProtection)
	w.volume("small", func(v *corev1.PersistentVolume) {
		v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("512Mi")
	})
	w.volume("v")
	w.enters("small", corev1.VolumeAvailable)
	w.enters("v", corev1.VolumeAvailable)
	w.claim("c")
	boundTo(t, w.becomes("c", corev1.ClaimBound), w.enters("v", corev1.VolumeBound))

	w.claim("d")
	w.told("d", "FailedBinding", "no persistent volumes available for this claim and no storage class is set")

	if err := w.claims.Delete(w.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(claimsResource, "default", "c")
	w.enters("v", corev1.VolumeReleased)
	apitest.Patch(w.API, w.volumes, "v", `{"spec":{"claimRef":null}}`)
	boundTo(t, w.becomes("d", corev1.ClaimBound), w.enters("v", corev1.VolumeBound))

	// A volume that goes while it is bound is lost only when it is gone.
	if err := w.volumes.Delete(w.Context(), "v", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	apitest.Patch(w.API, w.volumes, "v", `{"metadata":{"finalizers":null}}`)
	w.AwaitGone(volumesResource, "", "v")
	w.becomes("d", corev1.ClaimLost)
	w.told("d", "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
}

// TestVolumeNamed: claims that name a volume, and volumes that were kept for a claim.
func TestVolumeNamed(t *testing.T) {
	w := startStorage(t)
	w.Control(catalog.VolumeBinding)
	in := func(volume string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume }
	}
	first := w.claim("first", in("v"))
	w.volume("v")
	boundTo(t, w.becomes("first", corev1.ClaimBound), w.enters("v", corev1.VolumeBound))
	if first.Status.Phase != corev1.ClaimPending {
		t.Errorf("a new claim is %s", first.Status.Phase)
	}
	w.claim("second", in("v"))
	w.told("second", "FailedBinding", `volume "v" already bound to a different claim.`)

	w.claim("large", in("w"), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("3Gi")
	})
	w.volume("w")
	w.told("large", "VolumeMismatch", `Cannot bind to requested volume "w": requested PV is too small`)

	w.volume("kept", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "k"}
	})
	w.enters("kept", corev1.VolumeAvailable)
	w.claim("k")
	c, v := w.becomes("k", corev1.ClaimBound), w.enters("kept", corev1.VolumeBound)
	boundTo(t, c, v)
	if _, ours := v.Annotations["pv.kubernetes.io/bound-by-controller"]; ours {
		t.Error("the volume was kept by a person, and says that the controller did")
	}
}

// TestVolumeMade: a provisioner is told of a claim, makes its volume, and removes it when it is released.
func TestVolumeMade(t *testing.T) {
	w := startStorage(t)
	w.Control(catalog.VolumeBinding, catalog.ClaimProtection, catalog.VolumeProtection)
	const provisioner = "example.com/maker"
	w.claim("early") // there is no class yet
	w.class("made", provisioner, storagev1.VolumeBindingImmediate, map[string]string{pods.DefaultClassAnnotation: "true"})
	w.class("late", provisioner, storagev1.VolumeBindingWaitForFirstConsumer, nil)
	w.class("old", "kubernetes.io/no-provisioner", storagev1.VolumeBindingImmediate, nil)
	provide := func(claim *corev1.PersistentVolumeClaim) {
		w.volume("pvc-"+string(claim.UID), reclaimDeletes, classed(*claim.Spec.StorageClassName), func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}
			v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "default", Name: claim.Name, UID: claim.UID}
		})
	}
	asked := func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["volume.kubernetes.io/storage-provisioner"] == provisioner && c.Annotations["volume.beta.kubernetes.io/storage-provisioner"] == provisioner
	}
	early := w.claimIs("early", "told to the provisioner", asked)
	if early.Spec.StorageClassName == nil || *early.Spec.StorageClassName != "made" || early.Status.Phase != corev1.ClaimPending {
		t.Fatalf("%+v", early)
	}
	w.told("early", "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner '"+provisioner+"'")
	provide(early)
	name := "pvc-" + string(early.UID)
	boundTo(t, w.becomes("early", corev1.ClaimBound), w.enters(name, corev1.VolumeBound))

	w.claim("late", ofClass("late"))
	w.told("late", "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	apitest.Patch(w.API, w.claims, "late", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n"}}}`)
	provide(w.claimIs("late", "told to the provisioner", asked))
	w.becomes("late", corev1.ClaimBound)

	w.claim("old", ofClass("old"))
	w.told("old", "ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner")
	w.claim("none", ofClass("none"))
	w.told("none", "ProvisioningFailed", `storageclass.storage.k8s.io "none" not found`)

	// What was made is left to who made it; nobody removes what a person has made.
	w.volume("mine", reclaimDeletes, classed("old"))
	w.becomes("old", corev1.ClaimBound)
	for _, claim := range []string{"early", "old"} {
		if err := w.claims.Delete(w.Context(), claim, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.enters(name, corev1.VolumeReleased)
	const why = `error getting deleter volume plugin for volume "mine": no deletable volume plugin matched`
	if v := w.enters("mine", corev1.VolumeFailed); v.Status.Message != why {
		t.Errorf("the message is %q", v.Status.Message)
	}
	w.told("mine", "VolumeFailedDelete", why)
}

// TestVolumeElsewhere: of two volumes that point at a claim it gets one, and the other one is free again, or is removed by who made it.
func TestVolumeElsewhere(t *testing.T) {
	w := startStorage(t)
	c := w.claim("c")
	ref := func(v *corev1.PersistentVolume) {
		v.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
		v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "default", Name: "c", UID: c.UID}
	}
	w.volume("a", ref)
	w.volume("b", ref)
	w.Control(catalog.VolumeBinding)
	c = w.becomes("c", corev1.ClaimBound)
	other := map[string]string{"a": "b", "b": "a"}[c.Spec.VolumeName]
	boundTo(t, c, w.enters(c.Spec.VolumeName, corev1.VolumeBound))
	if v := w.enters(other, corev1.VolumeAvailable); v.Spec.ClaimRef != nil || len(v.Annotations) > 0 {
		t.Errorf("%s is %+v", other, v)
	}
}

// TestVolumeBindingCrash: a controller dies before each of its writes, and another one completes what it has begun.
func TestVolumeBindingCrash(t *testing.T) {
	w := startStorage(t)
	for _, step := range []string{"volume", "volume-status", "claim", "claim-status"} {
		w.volume("v-"+step, classed(step))
		stop := w.Control(catalog.VolumeBinding)
		w.enters("v-"+step, corev1.VolumeAvailable)
		stop()
		died := make(chan struct{})
		once := sync.OnceFunc(func() { close(died) })
		disarm := failpoint.Arm("controllers/volumebinding/"+step, func() error {
			once()
			return errors.New("it dies")
		})
		w.claim("c-"+step, ofClass(step))
		stop = w.Control(catalog.VolumeBinding)
		<-died
		stop()
		disarm()
		stop = w.Control(catalog.VolumeBinding)
		boundTo(t, w.becomes("c-"+step, corev1.ClaimBound), w.enters("v-"+step, corev1.VolumeBound))
		stop()
	}
}

// TestVolumeBindingMany: many claims that are asked for at once get a volume of their own each.
func TestVolumeBindingMany(t *testing.T) {
	w := startStorage(t)
	const n = 50
	for i := range n {
		w.volume(fmt.Sprintf("v%d", i))
	}
	w.Control(catalog.VolumeBinding)
	for i := range n {
		w.claim(fmt.Sprintf("c%d", i))
	}
	given := map[string]string{}
	w.AwaitChange(func(ctx context.Context) bool {
		list, err := w.claims.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clear(given)
		for _, c := range list.Items {
			if c.Status.Phase != corev1.ClaimBound {
				return false
			}
			if other, twice := given[c.Spec.VolumeName]; twice {
				t.Fatalf("%s and %s have %s", c.Name, other, c.Spec.VolumeName)
			}
			given[c.Spec.VolumeName] = c.Name
		}
		return len(given) == n
	}, func() string { return fmt.Sprintf("of %d claims these are bound: %v", n, given) }, claimsResource, "default")
}

// BenchmarkBinding binds claims to volumes that are there already.
func BenchmarkBinding(b *testing.B) {
	w := startStorage(b)
	for i := range b.N {
		w.volume(fmt.Sprintf("v%d", i))
		w.claim(fmt.Sprintf("c%d", i))
	}
	watch, err := w.claims.Watch(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	b.ResetTimer()
	w.Control(catalog.VolumeBinding)
	for bound := map[string]bool{}; len(bound) < b.N; {
		if c, ok := (<-watch.ResultChan()).Object.(*corev1.PersistentVolumeClaim); ok && c.Status.Phase == corev1.ClaimBound {
			bound[c.Name] = true
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}
