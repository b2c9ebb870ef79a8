package controllers_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
)

func ephemeralClaim() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

func podWithEphemeral(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": name}}, Spec: ephemeralClaim()},
		}}}},
	}}
}

// TestEphemeralClaimIsMade: a pod's claim is made, made anew when it is deleted, and goes with the pod. One of its name that is not its own is left alone, the pod is told,
// and the pod gets its own once that one is gone.
func TestEphemeralClaimIsMade(t *testing.T) {
	api := apitest.StartIn(t, "vol")
	ctx, core := t.Context(), api.Client.CoreV1()
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "b-v"}, Spec: ephemeralClaim()}
	if _, err := core.PersistentVolumeClaims("vol").Create(ctx, foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api.Control(catalog.EphemeralVolume, catalog.ClaimProtection, catalog.GarbageCollector)
	a, err := core.Pods("vol").Create(ctx, podWithEphemeral("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := func(of *corev1.Pod, but string) (uid string) {
		api.Await(claimsResource, "vol", of.Name+"-v", "the pod's own", func(o *metav1.PartialObjectMetadata) bool {
			if o == nil || string(o.UID) == but || !metav1.IsControlledBy(o, of) || o.Labels["of"] != of.Name {
				return false
			}
			uid = string(o.UID)
			return true
		})
		return uid
	}
	first := made(a, "")
	if err := core.PersistentVolumeClaims("vol").Delete(ctx, "a-v", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	made(a, first)
	if err := core.Pods("vol").Delete(ctx, "a", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	api.AwaitGone(claimsResource, "vol", "a-v")

	b, err := core.Pods("vol").Create(ctx, podWithEphemeral("b"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := func() bool {
		all, err := core.Events("vol").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			e := &all.Items[i]
			if e.InvolvedObject.UID == b.UID && e.Reason == "FailedBinding" && e.Type == corev1.EventTypeWarning && e.Source.Component == "ephemeral_volume" &&
				e.Message == "ephemeral volume v: PVC vol/b-v was not created for pod vol/b (pod is not owner)" {
				return true
			}
		}
		return false
	}
	if watch, err := core.Events("vol").Watch(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	} else {
		for !told() {
			if _, ok := <-watch.ResultChan(); !ok {
				t.Fatal("the pod is not told of the claim of its name")
			}
		}
		watch.Stop()
	}
	kept, err := core.PersistentVolumeClaims("vol").Get(ctx, "b-v", metav1.GetOptions{})
	if err != nil || len(kept.OwnerReferences) > 0 {
		t.Fatalf("the claim that was there: %+v, %v", kept, err)
	}
	if err := core.PersistentVolumeClaims("vol").Delete(ctx, "b-v", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	made(b, string(kept.UID))
}

// TestRefusedEphemeralClaim: what the API server says of a claim that cannot be made reaches the pod.
func TestRefusedEphemeralClaim(t *testing.T) {
	api := apitest.StartIn(t, "limited")
	ctx, core := t.Context(), api.Client.CoreV1()
	if _, err := core.LimitRanges("limited").Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypePersistentVolumeClaim, Max: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
	}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api.Control(catalog.EphemeralVolume)
	watch, err := core.Events("limited").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := core.Pods("limited").Create(ctx, podWithEphemeral("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range watch.ResultChan() {
		if e, ok := event.Object.(*corev1.Event); ok && e.Reason == "FailedBinding" {
			if !strings.HasPrefix(e.Message, "ephemeral volume v: create PVC a-v: ") || !strings.Contains(e.Message, "maximum storage usage per PersistentVolumeClaim is 1Mi") {
				t.Errorf("told %q", e.Message)
			}
			return
		}
	}
	t.Error("the pod is not told")
}

// TestKilledWithEphemeralClaims: a controller dies before and after it makes a claim; the next one sees to it that the pod has its claim, and takes one that is there.
func TestKilledWithEphemeralClaims(t *testing.T) {
	api := apitest.StartIn(t, "vol")
	ctx, core := t.Context(), api.Client.CoreV1()
	for _, c := range []struct {
		at   string
		made bool
	}{{"make", false}, {"made", true}} {
		died, revive := apitest.Dies("controllers/ephemeralvolume/" + c.at)
		stop := api.Control(catalog.EphemeralVolume)
		p, err := core.Pods("vol").Create(ctx, podWithEphemeral(c.at), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-died
		stop()
		revive()
		first, err := core.PersistentVolumeClaims("vol").Get(ctx, c.at+"-v", metav1.GetOptions{})
		if (err == nil) != c.made {
			t.Errorf("%s: the claim is %v, %v", c.at, first, err)
		}
		stop = api.Control(catalog.EphemeralVolume)
		api.Await(claimsResource, "vol", c.at+"-v", "the pod's own", func(o *metav1.PartialObjectMetadata) bool {
			return o != nil && metav1.IsControlledBy(o, p) && (!c.made || o.UID == first.UID)
		})
		stop()
	}
}
