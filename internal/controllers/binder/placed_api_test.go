package binder_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
)

// on is a pod that names its node, and has claims.
func on(node string, claims ...string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		with(claims...)(s)
		s.NodeName = node
	}
}

// refuse has the provisioner of a claim say why it makes no volume; empty: it has nothing against that any more.
func (w *world) refuse(claim, why string) {
	w.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claims := w.client.CoreV1().PersistentVolumeClaims("default")
		c, err := claims.Get(w.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Status.Conditions = nil
		if why != "" {
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "monopod.dev/ProvisioningFailed", Status: corev1.ConditionTrue, Message: why}}
		}
		_, err = claims.UpdateStatus(w.Context(), c, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestAPodThatNamesItsNode: its claims get their volumes there, whether they are there before the pod or come later, are made again, or are the pod's own.
func TestAPodThatNamesItsNode(t *testing.T) {
	w := newWorld(t)
	w.class("late")
	w.class("static", byHand)
	w.hosts("a", "b")
	w.control(catalog.Binder, catalog.VolumeBinding)
	w.provision()
	bound := func(claim string) string {
		volume := ""
		w.untilClaim(claim, "bound", func(c *corev1.PersistentVolumeClaim) bool {
			volume = c.Spec.VolumeName
			return c.Status.Phase == corev1.ClaimBound
		})
		return volume
	}
	w.claim("before", "late", corev1.ReadWriteOnce)
	w.pod("p", on("b", "before", "after"))
	w.claim("after", "late", corev1.ReadWriteOnce) // the pod has none of both until both are there
	bound("before")
	bound("after")
	w.untilMarked("after", "b")

	// A volume that is there, and then one more.
	w.claim("given", "static", corev1.ReadWriteOnce)
	w.volume("elsewhere", "static", "b")
	w.pod("q", on("a", "given"))
	w.untilEvent("q", "FailedBinding", "The claims of the pod get no volumes on node a, which the pod names itself: node(s) didn't find available persistent volumes to bind")
	w.volume("here", "static", "a")
	if v := bound("given"); v != "here" {
		t.Errorf("the pod on a has got volume %s", v)
	}

	// The claim of a pod that runs is removed by force, and made again.
	w.change("given", func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
	if err := w.client.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "given", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	w.claim("given", "late", corev1.ReadWriteOnce)
	bound("given")
	w.untilMarked("given", "a")

	// A provisioner that has something against it.
	w.class("never", func(c *storagev1.StorageClass) { c.Provisioner = "example.com/never" })
	w.claim("refused", "never", corev1.ReadWriteOnce)
	w.pod("r", on("a", "refused"))
	w.untilMarked("refused", "a")
	w.refuse("refused", "no room")
	w.untilEvent("r", "FailedBinding", `The claims of the pod get no volumes on node a, which the pod names itself: persistentvolumeclaim "refused" gets no volume: no room`)
}

// TestAPodThatNamesItsNodeGoes while a volume is kept for it: another pod gets it.
func TestAPodThatNamesItsNodeGoes(t *testing.T) {
	w := newWorld(t)
	w.class("late")
	w.class("static", byHand)
	w.hosts("a")
	w.bind()
	w.volume("v", "static", "a")
	w.claim("c", "static", corev1.ReadWriteOnce)
	w.claim("never", "late", corev1.ReadWriteOnce)
	w.pod("p", on("a", "c", "never")) // never gets the second one
	w.untilMarked("never", "a")
	w.untilVolume("v", "given", func(v *corev1.PersistentVolume) bool { return v.Spec.ClaimRef != nil })
	w.claim("d", "static", corev1.ReadWriteOnce)
	w.pod("q", with("d"))
	w.untilWaiting("q", "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.")
	w.end("p")
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // as the controller of volumes does when the claim has gone
		v, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.Spec.ClaimRef = nil
		_, err = w.client.CoreV1().PersistentVolumes().Update(t.Context(), v, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.untilVolume("v", "the other one's", func(v *corev1.PersistentVolume) bool { return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == "d" })
	w.complete("d", "v")
	w.untilBound("q", "a")
}

// TestAClaimIsRefused: its pod says so in the provisioner's words, gives its place to others, and is bound when there is a volume after all. So it is with a class
// that goes meanwhile.
func TestAClaimIsRefused(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.class("late")
	w.hosts("a")
	w.claim("c", "late", corev1.ReadWriteMany)
	w.pod("p", with("c"), "cpu", "3")
	w.untilMarked("c", "a")
	w.pod("large", nil, "cpu", "2")
	w.untilWaiting("large", "0/1 nodes are available: 1 Insufficient cpu.")
	const why = `0/1 nodes are available: persistentvolumeclaim "c" gets no volume: failed to provision volume: ReadWriteMany cannot be had.`
	w.refuse("c", "failed to provision volume: ReadWriteMany cannot be had")
	w.untilWaiting("p", why)
	w.untilEvent("p", "FailedScheduling", why)
	w.untilBound("large", "a")
	w.end("large")
	w.refuse("c", "") // it is being made now
	w.volume("v", "late", "a")
	w.complete("c", "v")
	w.untilBound("p", "a")
	w.end("p")

	w.class("gone")
	w.claim("d", "gone", corev1.ReadWriteOnce)
	w.pod("q", with("d"), "cpu", "3")
	w.untilMarked("d", "a")
	if err := w.client.StorageV1().StorageClasses().Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilWaiting("q", "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
	w.pod("next", nil, "cpu", "2")
	w.untilBound("next", "a")
}

// TestKilledOnAnErrand: a binder dies before it gives a volume to a claim, or says for which node one is made. The next one does it.
func TestKilledOnAnErrand(t *testing.T) {
	w := newWorld(t)
	w.class("late")
	w.class("static", byHand)
	w.hosts("a")
	w.volume("v", "static", "a")
	for _, c := range []struct{ at, class string }{{"give", "static"}, {"mark", "late"}} {
		w.claim(c.at, c.class, corev1.ReadWriteOnce)
		died, revive := apitest.Dies("controllers/binder/"+c.at, "controllers/binder/give", "controllers/binder/mark")
		stop := w.bind()
		w.pod(c.at, with(c.at))
		<-died
		stop()
		revive()
		v, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
		if err != nil || c.at == "give" && v.Spec.ClaimRef != nil {
			t.Errorf("%s: the volume is %+v, %v", c.at, v.Spec.ClaimRef, err)
		}
		if claim := w.change(c.at, func(*corev1.PersistentVolumeClaim) {}); claim.Annotations[selectedNode] != "" {
			t.Errorf("%s: the claim is marked with %s", c.at, claim.Annotations[selectedNode])
		}
		stop = w.bind()
		if c.at == "give" {
			w.untilVolume("v", "given", func(v *corev1.PersistentVolume) bool { return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != "" })
			w.complete(c.at, "v")
		} else {
			w.untilMarked(c.at, "a")
			w.volume("made", c.class, "a")
			w.complete(c.at, "made")
		}
		w.untilBound(c.at, "a")
		stop()
	}
}
