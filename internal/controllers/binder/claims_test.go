package binder_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"monopod.dev/monopod/internal/controllers/catalog"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// class makes a class whose volumes are made by example.com/p, and are bound late.
func (w *world) class(name string, changes ...func(*storagev1.StorageClass)) {
	w.Helper()
	class := lateClass(name)
	for _, change := range changes {
		change(class)
	}
	if _, err := w.client.StorageV1().StorageClasses().Create(w.Context(), class, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func lateClass(name string) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/p", VolumeBindingMode: &mode}
}

func byHand(c *storagev1.StorageClass) { c.Provisioner = "kubernetes.io/no-provisioner" }

func (w *world) claim(name, class string, mode corev1.PersistentVolumeAccessMode) {
	w.Helper()
	_, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{mode},
			Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// volume makes a local one of a node, as an administrator or a provisioner does.
func (w *world) volume(name, class, node string) {
	w.Helper()
	v, err := w.volumeFor(name, class, node, nil)
	if err != nil {
		w.Fatal(err)
	}
	v.Status.Phase = corev1.VolumeAvailable
	if _, err := w.client.CoreV1().PersistentVolumes().UpdateStatus(w.Context(), v, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) { // the controller of volumes was there before
		w.Fatal(err)
	}
}

func (w *world) volumeFor(name, class, node string, claim *corev1.ObjectReference) (*corev1.PersistentVolume, error) {
	return w.client.CoreV1().PersistentVolumes().Create(w.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, ClaimRef: claim, Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/nowhere/" + name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}},
		},
	}, metav1.CreateOptions{})
}

// change changes a claim until it is written.
func (w *world) change(name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	var claim *corev1.PersistentVolumeClaim
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		claims := w.client.CoreV1().PersistentVolumeClaims("default")
		if claim, err = claims.Get(w.Context(), name, metav1.GetOptions{}); err == nil {
			change(claim)
			claim, err = claims.Update(w.Context(), claim, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return claim
}

// complete does what the controller of volumes does: a volume and a claim are bound to one another.
func (w *world) complete(claim, volume string) {
	w.Helper()
	of, err := w.client.CoreV1().PersistentVolumeClaims("default").Get(w.Context(), claim, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	ref := fmt.Sprintf(`{"spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": %q, "uid": %q}}}`, claim, of.UID)
	if _, err := w.client.CoreV1().PersistentVolumes().Patch(w.Context(), volume, types.MergePatchType, []byte(ref), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
	w.change(claim, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = volume
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
	})
}

// untilClaim waits until a claim is as wanted, untilVolume a volume.
func (w *world) untilClaim(name, what string, wanted func(*corev1.PersistentVolumeClaim) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	watcher, err := w.client.CoreV1().PersistentVolumeClaims("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok && wanted(claim) {
			return
		}
	}
	w.Fatalf("claim %s does not become %s", name, what)
}

func (w *world) untilVolume(name, what string, wanted func(*corev1.PersistentVolume) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	watcher, err := w.client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if v, ok := event.Object.(*corev1.PersistentVolume); ok && wanted(v) {
			return
		}
	}
	w.Fatalf("volume %s does not become %s", name, what)
}

// untilMarked waits until a claim has its node, with which it gets its provisioner.
func (w *world) untilMarked(claim, node string) {
	w.Helper()
	w.untilClaim(claim, "marked with "+node, func(c *corev1.PersistentVolumeClaim) bool {
		marked := c.Annotations[selectedNode] == node
		if marked && c.Annotations["volume.kubernetes.io/storage-provisioner"] == "" {
			w.Errorf("claim %s has its node, and does not say who makes its volume", claim)
		}
		return marked
	})
}

// hosts makes nodes with the label by which local volumes know them.
func (w *world) hosts(names ...string) {
	w.Helper()
	for _, name := range names {
		w.node(name, "cpu", "4")
		w.patchNode(name, fmt.Sprintf(`{"metadata": {"labels": {"kubernetes.io/hostname": %q}}}`, name))
	}
}

// with is a pod's claims.
func with(claims ...string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		for _, c := range claims {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
		}
	}
}

// TestAPodWaitsForItsClaim until it is there, and bound where that is done at once; it runs where its volume is.
func TestAPodWaitsForItsClaim(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.hosts("a", "b")
	w.pod("p", with("c"))
	const none = "0/2 nodes are available: "
	w.untilWaiting("p", none+`persistentvolumeclaim "c" not found.`)
	w.untilEvent("p", "FailedScheduling", none+`persistentvolumeclaim "c" not found.`)
	w.claim("c", "soon", corev1.ReadWriteOnce)
	w.untilWaiting("p", none+"pod has unbound immediate PersistentVolumeClaims.")
	w.volume("v", "soon", "b")
	w.complete("c", "v")
	w.untilBound("p", "b")

	w.pod("q", func(s *corev1.PodSpec) {
		with("c")(s)
		s.NodeSelector = map[string]string{"kubernetes.io/hostname": "a"}
	})
	w.untilWaiting("q", none+"1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node affinity/selector.")
	w.end("q")

	w.pod("r", with("d"))
	w.claim("d", "late", corev1.ReadWriteOnce)
	w.untilWaiting("r", none+"pod has unbound immediate PersistentVolumeClaims.")
	w.class("late", byHand)
	w.untilWaiting("r", none+"2 node(s) didn't find available persistent volumes to bind.")
	w.volume("w", "late", "a") // of this class there is one to be had
	w.untilVolume("w", "the claim's", func(v *corev1.PersistentVolume) bool { return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == "d" })
	w.complete("d", "w")
	w.untilBound("r", "a")
}

// TestAVolumeIsMadeForThePodsNode: the pod keeps its place meanwhile, holds nobody up, and is bound when the volume is.
func TestAVolumeIsMadeForThePodsNode(t *testing.T) {
	w := newWorld(t)
	stop := w.bind()
	w.class("late")
	w.hosts("a")
	w.claim("c", "late", corev1.ReadWriteOnce)
	w.pod("p", with("c"), "cpu", "3")
	w.untilMarked("c", "a")
	w.pod("large", nil, "cpu", "2")
	w.untilWaiting("large", "0/1 nodes are available: 1 Insufficient cpu.")
	w.pod("small", nil, "cpu", "1")
	w.untilBound("small", "a")
	w.hosts("b")
	w.untilBound("large", "b")

	stop() // the next one finds where the volume is being made, though there is more room elsewhere
	w.hosts("c", "d")
	w.bind()
	w.pod("late", nil) // is decided after the other
	w.until("late", "bound", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	w.pod("q", with("c")) // goes with its first consumer, and waits as long
	w.volume("v", "late", "a")
	w.complete("c", "v")
	w.untilBound("p", "a")
	w.untilBound("q", "a")
	w.untilEvent("p", "Scheduled", "Successfully assigned default/p to a")

	w.claim("gone", "late", corev1.ReadWriteOnce)
	w.pod("first", func(s *corev1.PodSpec) {
		with("gone")(s)
		s.NodeSelector = map[string]string{"kubernetes.io/hostname": "c"}
	}, "cpu", "4")
	w.untilMarked("gone", "c")
	w.pod("second", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kubernetes.io/hostname": "c"} }, "cpu", "4")
	w.untilWaiting("second", "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't match Pod's node affinity/selector.")
	w.end("first") // while it waits for its volume: its place is free
	w.untilBound("second", "c")
}

// TestAVolumeThatIsThereIsGivenOnce: of two pods one gets it, and the other one waits until somebody makes one more.
func TestAVolumeThatIsThereIsGivenOnce(t *testing.T) {
	w := newWorld(t)
	w.class("static", byHand)
	w.hosts("a", "b")
	w.volume("v", "static", "b")
	w.claim("c", "static", corev1.ReadWriteOnce)
	w.claim("d", "static", corev1.ReadWriteOnce)
	w.bind()
	w.pod("p", with("c"))
	w.pod("q", with("d"))
	w.untilVolume("v", "given", func(v *corev1.PersistentVolume) bool {
		return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != "" && v.Annotations["pv.kubernetes.io/bound-by-controller"] == "yes"
	})
	v, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, second, other := "p", "q", "d"
	if v.Spec.ClaimRef.Name == "d" {
		first, second, other = "q", "p", "c"
	}
	w.untilWaiting(second, "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.")
	w.complete(v.Spec.ClaimRef.Name, "v")
	w.untilBound(first, "b")
	w.volume("w", "static", "a")
	w.untilVolume("w", "given", func(v *corev1.PersistentVolume) bool { return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == other })
	w.complete(other, "w")
	w.untilBound(second, "a")
}

// TestAProvisionerGivesUp: it takes the annotation off, and the pod is told, and given a node anew.
func TestAProvisionerGivesUp(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.class("late")
	w.hosts("a")
	w.claim("c", "late", corev1.ReadWriteOnce)
	w.pod("p", with("c"))
	w.untilMarked("c", "a")
	w.patchNode("a", `{"spec": {"unschedulable": true}}`)
	w.change("c", func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, selectedNode) })
	w.untilEvent("p", "FailedScheduling", `running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"`)
	w.untilWaiting("p", "0/1 nodes are available: 1 node(s) were unschedulable.")
	w.hosts("b")
	w.untilMarked("c", "b")
	w.volume("v", "late", "b")
	w.complete("c", "v")
	w.untilBound("p", "b")
}

// TestTheNodeOfAClaimGoes: nobody makes the volume there any more, so the pod gets another node, and the claim with it.
func TestTheNodeOfAClaimGoes(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.class("late")
	w.hosts("a")
	w.claim("c", "late", corev1.ReadWriteOnce)
	w.pod("p", with("c"))
	w.untilMarked("c", "a")
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilEvent("p", "FailedScheduling", `running PreBind plugin "VolumeBinding": binding volumes: failed to get node "a": node "a" not found`)
	w.untilWaiting("p", "no nodes available to schedule pods")
	w.hosts("b")
	w.untilMarked("c", "b")
	w.volume("v", "late", "b")
	w.complete("c", "v")
	w.untilBound("p", "b")
}

// TestAClaimForOnePod: the next one gets it when the first has ended, wherever that was.
func TestAClaimForOnePod(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.hosts("a")
	w.claim("c", "any", corev1.ReadWriteOncePod)
	w.volume("v", "any", "a")
	w.complete("c", "v")
	w.pod("first", with("c"))
	w.untilBound("first", "a")
	w.pod("second", with("c"))
	w.untilWaiting("second", "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod.")
	w.end("first")
	w.untilBound("second", "a")
	w.end("second")
	w.pod("placed", func(s *corev1.PodSpec) { with("c")(s); s.NodeName = "nowhere" })
	w.pod("third", with("c"))
	w.untilWaiting("third", "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod.")
	w.end("placed")
	w.untilBound("third", "a")
}

// TestAClaimThatAPodBringsAlong has to be the pod's own.
func TestAClaimThatAPodBringsAlong(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.class("late")
	w.hosts("a")
	class := "late"
	pod := w.pod("p", func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
			}}}}}}
	})
	w.untilWaiting("p", `0/1 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch".`)
	w.claim("p-scratch", class, corev1.ReadWriteOnce)
	w.untilWaiting("p", "0/1 nodes are available: PVC default/p-scratch was not created for pod default/p (pod is not owner).")
	w.change("p-scratch", func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	})
	w.untilMarked("p-scratch", "a")
	w.volume("v", class, "a")
	w.complete("p-scratch", "v")
	w.untilBound("p", "a")
}

// provision makes volumes for a class as a provisioner from outside does: for claims that say so and name their node.
func (w *world) provision() {
	w.Helper()
	watcher, err := w.client.CoreV1().PersistentVolumeClaims("default").Watch(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	ended := make(chan struct{})
	w.Cleanup(func() { watcher.Stop(); <-ended })
	go func() {
		defer close(ended)
		made := map[types.UID]bool{}
		for event := range watcher.ResultChan() {
			claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
			node := ""
			if ok && claim.Annotations["volume.kubernetes.io/storage-provisioner"] == "example.com/p" && claim.Spec.VolumeName == "" && !made[claim.UID] {
				node = claim.Annotations[selectedNode]
			}
			if node != "" {
				made[claim.UID] = true
				_, err := w.volumeFor("pvc-"+string(claim.UID), *claim.Spec.StorageClassName, node, &corev1.ObjectReference{
					APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID})
				if err != nil {
					w.Error(err)
				}
			}
		}
	}()
}

// TestManyPodsWithClaims: with the controller of volumes and a provisioner each pod gets its own volume, on its node; and how long that takes.
func TestManyPodsWithClaims(t *testing.T) {
	w := newWorld(t)
	w.control(catalog.Binder, catalog.VolumeBinding)
	w.class("late")
	w.class("static", byHand)
	w.hosts("a", "b")
	w.provision()
	const many, there = 20, 5
	for i := range there {
		w.volume(fmt.Sprint("there-", i), "static", "b")
	}
	for i := range many {
		w.claim(fmt.Sprint("made-", i), "late", corev1.ReadWriteOnce)
		w.pod(fmt.Sprint("made-", i), with(fmt.Sprint("made-", i)))
	}
	for i := range there {
		w.claim(fmt.Sprint("there-", i), "static", corev1.ReadWriteOnce)
		w.pod(fmt.Sprint("there-", i), with(fmt.Sprint("there-", i)))
	}
	for i := range there {
		w.untilBound(fmt.Sprint("there-", i), "b")
	}
	given := map[string]string{}
	for i := range many {
		name := fmt.Sprint("made-", i)
		node := ""
		w.until(name, "bound", func(p *corev1.Pod) bool { node = p.Spec.NodeName; return node != "" })
		claim, err := w.client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if claim.Annotations[selectedNode] != node || claim.Spec.VolumeName == "" || given[claim.Spec.VolumeName] != "" {
			t.Errorf("pod %s is on %s; its claim, for %s, has %q, as has %q", name, node, claim.Annotations[selectedNode], claim.Spec.VolumeName, given[claim.Spec.VolumeName])
		}
		given[claim.Spec.VolumeName] = name
	}

	times := map[string][]time.Duration{}
	for i := range 15 {
		for _, kind := range []string{"none", "bound", "unbound"} {
			name := fmt.Sprint(kind, i)
			var claims []string
			switch kind {
			case "bound":
				claims = []string{fmt.Sprint("made-", i)}
			case "unbound":
				claims = []string{name}
				w.claim(name, "late", corev1.ReadWriteOnce)
			}
			start := time.Now()
			w.pod(name, with(claims...))
			w.until(name, "bound", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
			times[kind] = append(times[kind], time.Since(start))
		}
	}
	for kind, all := range times {
		slices.Sort(all)
		t.Logf("created to bound, claim %s: p50 %v, p90 %v", kind, all[len(all)/2], all[len(all)*9/10])
	}
}
