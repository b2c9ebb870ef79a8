package controllers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/apitest"
)

// ofStatefulSets are the controllers. A deletion that ends before its answer may leave a pod without a node that is deleted and stays: that is the pod collector's.
var ofStatefulSets = []string{catalog.StatefulSet, catalog.PodGC}

// statefulSets is an API server with a namespace of its own.
type statefulSets struct {
	*apitest.API
	namespace string
}

func newStatefulSets(t *testing.T) *statefulSets {
	t.Helper()
	return &statefulSets{API: apitest.StartIn(t, "apps"), namespace: "apps"}
}

// set is one of so many pods of an image.
func (w *statefulSets) set(name string, replicas int32, image string, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	w.Helper()
	of := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{ServiceName: "svc", Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: of}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		}},
	}
	for _, c := range change {
		c(set)
	}
	set, err := w.Client.AppsV1().StatefulSets(w.namespace).Create(w.Context(), set, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return set
}

// patch changes a set by a strategic merge patch.
func (w *statefulSets) patch(name, format string, args ...any) {
	w.Helper()
	apitest.Patch(w.API, w.Client.AppsV1().StatefulSets(w.namespace), name, format, args...)
}

func (w *statefulSets) image(name, image string) {
	w.Helper()
	w.patch(name, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
}

// await waits until a set is as wanted.
func (w *statefulSets) await(name, what string, wanted func(*appsv1.StatefulSet) bool) *appsv1.StatefulSet {
	w.Helper()
	return apitest.Become(w.API, appsv1.SchemeGroupVersion.WithResource("statefulsets"), w.namespace, w.Client.AppsV1().StatefulSets(w.namespace), name, what,
		func(set *appsv1.StatefulSet) bool {
			return set.Status.ObservedGeneration == set.Generation && wanted(set)
		},
		func(set *appsv1.StatefulSet) string { return fmt.Sprintf("%+v, pods %s", set.Status, w.pods(name)) })
}

// rolled waits until all pods of a set are of its template, and available.
func (w *statefulSets) rolled(name string) *appsv1.StatefulSet {
	w.Helper()
	return w.await(name, "complete", func(set *appsv1.StatefulSet) bool {
		n, st := *set.Spec.Replicas, set.Status
		return st.CurrentRevision == st.UpdateRevision && st.UpdatedReplicas == n && st.Replicas == n && st.AvailableReplicas == n
	})
}

// pods are a set's pods with their images, by their names.
func (w *statefulSets) pods(app string) string {
	w.Helper()
	list, err := w.Client.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Name+":"+list.Items[i].Spec.Containers[0].Image)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (w *statefulSets) expect(app, want string) {
	w.Helper()
	if got := w.pods(app); got != want {
		w.Errorf("pods %q, want %q", got, want)
	}
}

// history is a set's with the numbers and images, the oldest first.
func (w *statefulSets) history(app string) (all []string, of []appsv1.ControllerRevision) {
	w.Helper()
	list, err := w.Client.AppsV1().ControllerRevisions(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	for _, r := range list.Items {
		_, image, _ := strings.Cut(string(r.Data.Raw), `"image":"`)
		image, _, _ = strings.Cut(image, `"`)
		all = append(all, fmt.Sprintf("%d:%s", r.Revision, image))
	}
	return all, list.Items
}

func TestStatefulSetRollout(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(everyPod)
	w.Control(ofStatefulSets...)
	w.set("web", 3, "one", func(set *appsv1.StatefulSet) {
		set.Annotations = map[string]string{"kubernetes.io/change-cause": "why"}
	})
	set := w.rolled("web")
	w.expect("web", "web-0:one web-1:one web-2:one")
	pod, err := w.Client.CoreV1().Pods(w.namespace).Get(t.Context(), "web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Hostname != "web-1" || pod.Spec.Subdomain != "svc" || pod.Labels["statefulset.kubernetes.io/pod-name"] != "web-1" ||
		pod.Labels["apps.kubernetes.io/pod-index"] != "1" || pod.Labels["controller-revision-hash"] != set.Status.UpdateRevision {
		t.Errorf("pod %v of host %s in %s", pod.Labels, pod.Spec.Hostname, pod.Spec.Subdomain)
	}
	w.image("web", "two")
	w.rolled("web")
	w.expect("web", "web-0:two web-1:two web-2:two")
	w.patch("web", `{"spec":{"replicas":1}}`)
	w.rolled("web")
	w.expect("web", "web-0:two")
	numbers, revisions := w.history("web")
	if got := fmt.Sprint(numbers); got != "[1:one 2:two]" || revisions[0].Annotations["kubernetes.io/change-cause"] != "why" {
		t.Errorf("history %s, %v", got, revisions[0].Annotations)
	}
	w.patch("web", "%s", revisions[0].Data.Raw) // what kubectl rollout undo does
	w.rolled("web")
	w.expect("web", "web-0:one")
	if numbers, _ := w.history("web"); fmt.Sprint(numbers) != "[2:two 3:one]" {
		t.Errorf("history %s", numbers)
	}
	w.patch("web", `{"spec":{"replicas":2,"ordinals":{"start":5},"revisionHistoryLimit":0}}`)
	w.await("web", "moved", func(*appsv1.StatefulSet) bool { return w.pods("web") == "web-5:one web-6:one" })
	w.AwaitChange(func(context.Context) bool { numbers, _ := w.history("web"); return fmt.Sprint(numbers) == "[3:one]" },
		func() string { return "the history is longer than its limit" }, appsv1.SchemeGroupVersion.WithResource("controllerrevisions"), w.namespace)
}

// TestStatefulSetBroken: a rollout that is broken goes on with a better template, or with the one before: nobody deletes the pod that is waited for. So does a set that
// was broken from its beginning.
func TestStatefulSetBroken(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image != "broken" })
	w.Control(ofStatefulSets...)
	w.set("web", 3, "broken")
	w.await("web", "begun", func(*appsv1.StatefulSet) bool { return w.pods("web") == "web-0:broken" })
	for _, image := range []string{"one", "two"} {
		w.image("web", image)
		w.rolled("web")
		w.expect("web", fmt.Sprintf("web-0:%[1]s web-1:%[1]s web-2:%[1]s", image))
		w.image("web", "broken")
		w.await("web", "broken", func(*appsv1.StatefulSet) bool { return strings.HasSuffix(w.pods("web"), "web-2:broken") })
	}
	w.image("web", "two") // as it was before
	w.rolled("web")
	w.expect("web", "web-0:two web-1:two web-2:two")
}

// TestStatefulSetPartition: only pods from an ordinal on are of the new template, also when others are made anew.
func TestStatefulSetPartition(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(everyPod)
	w.Control(ofStatefulSets...)
	w.set("web", 3, "one")
	w.rolled("web")
	w.patch("web", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}},"template":{"spec":{"containers":[{"name":"c","image":"two"}]}}}}`)
	partly := func(set *appsv1.StatefulSet) bool {
		return set.Status.UpdatedReplicas == 1 && set.Status.CurrentReplicas == 2 && set.Status.AvailableReplicas == 3 && set.Status.Replicas == 3
	}
	w.await("web", "updated above the partition", partly)
	w.expect("web", "web-0:one web-1:one web-2:two")
	old, err := w.Client.CoreV1().Pods(w.namespace).Get(t.Context(), "web-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Client.CoreV1().Pods(w.namespace).Delete(t.Context(), "web-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Await(corev1.SchemeGroupVersion.WithResource("pods"), w.namespace, "web-0", "another one", func(o *metav1.PartialObjectMetadata) bool { return o != nil && o.UID != old.UID })
	w.await("web", "whole again", partly)
	w.expect("web", "web-0:one web-1:one web-2:two")
	w.patch("web", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	w.rolled("web")
	w.expect("web", "web-0:two web-1:two web-2:two")
}

// TestStatefulSetFailed: pods that have ended are made anew, one whose labels are taken gets them back, and one that somebody deletes has a successor of its name.
func TestStatefulSetFailed(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(everyPod)
	w.Control(ofStatefulSets...)
	w.set("web", 3, "one", func(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	w.rolled("web")
	client := w.Client.CoreV1().Pods(w.namespace)
	for i, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		name := fmt.Sprintf("web-%d", i)
		pod, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Patch(t.Context(), name, types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		w.Await(corev1.SchemeGroupVersion.WithResource("pods"), w.namespace, name, "another one", func(o *metav1.PartialObjectMetadata) bool { return o != nil && o.UID != pod.UID })
	}
	if _, err := client.Patch(t.Context(), "web-2", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"statefulset.kubernetes.io/pod-name":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Await(corev1.SchemeGroupVersion.WithResource("pods"), w.namespace, "web-2", "labelled", func(o *metav1.PartialObjectMetadata) bool {
		return o != nil && o.Labels["statefulset.kubernetes.io/pod-name"] == "web-2"
	})
	w.rolled("web")
}

// TestStatefulSetOrphans: a set that is made anew has the pods and the history of the one whose dependents were let be, and makes none again.
func TestStatefulSetOrphans(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(everyPod)
	w.Control(append(ofStatefulSets, catalog.GarbageCollector)...)
	w.set("web", 2, "one")
	w.rolled("web")
	w.image("web", "two")
	before := w.rolled("web")
	uids := func() (all []types.UID) {
		list, err := w.Client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			all = append(all, list.Items[i].UID)
		}
		return all
	}
	had := uids()
	orphan := metav1.DeletePropagationOrphan
	if err := w.Client.AppsV1().StatefulSets(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(appsv1.SchemeGroupVersion.WithResource("statefulsets"), w.namespace, "web")
	w.set("web", 2, "two")
	set := w.rolled("web")
	if !slices.Equal(uids(), had) || set.Status.UpdateRevision != before.Status.UpdateRevision {
		t.Errorf("pods %v, before %v; revision %s, before %s", uids(), had, set.Status.UpdateRevision, before.Status.UpdateRevision)
	}
	numbers, revisions := w.history("web")
	if fmt.Sprint(numbers) != "[1:one 2:two]" || !metav1.IsControlledBy(&revisions[0], set) {
		t.Errorf("history %v of %v", numbers, revisions[0].OwnerReferences)
	}
}

// TestStatefulSetCollision: a revision whose name somebody has gets another one.
func TestStatefulSetCollision(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(everyPod)
	stop := w.Control(ofStatefulSets...)
	w.set("web", 1, "one")
	name := w.rolled("web").Status.UpdateRevision
	stop()
	client := w.Client.AppsV1()
	if err := client.StatefulSets(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.ControllerRevisions(w.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}, Revision: 7}
	other.Data.Raw = []byte(`{"other":1}`)
	if _, err := client.ControllerRevisions(w.namespace).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.set("web", 1, "one")
	w.Control(append(ofStatefulSets, catalog.GarbageCollector)...)
	set := w.rolled("web")
	if set.Status.UpdateRevision == name || set.Status.CollisionCount == nil || *set.Status.CollisionCount != 1 {
		t.Errorf("revision %s as well as another one, after %v collisions", set.Status.UpdateRevision, set.Status.CollisionCount)
	}
}

// TestStatefulSetRestarts: controllers that end at any moment, and begin anew, keep to the order of their pods, while many sets roll at once. Members keep their claims, and
// those of members that scaling down deletes go.
func TestStatefulSetRestarts(t *testing.T) {
	const many, replicas = 12, 3
	w := newStatefulSets(t)
	w.Agent(everyPod)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := w.Client.CoreV1().Pods(w.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watchOrder(t, events)
	}()
	for i := range many {
		w.set(fmt.Sprint("web", i), replicas, "one", claiming, func(set *appsv1.StatefulSet) {
			set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			}
		})
	}
	first := map[types.UID]bool{}
	for _, image := range []string{"one", "two", "three"} {
		for i := range many {
			w.image(fmt.Sprint("web", i), image)
		}
		for range 15 {
			stop := w.Control(ofStatefulSets...)
			<-time.After(rand.N(300 * time.Millisecond)) // any moment
			stop()
		}
		stop := w.Control(ofStatefulSets...)
		for i := range many {
			name := fmt.Sprint("web", i)
			w.rolled(name)
			w.expect(name, fmt.Sprintf("%[1]s-0:%[2]s %[1]s-1:%[2]s %[1]s-2:%[2]s", name, image))
			w.awaitClaims(name, fmt.Sprintf("data-%[1]s-0:StatefulSet data-%[1]s-1:StatefulSet data-%[1]s-2:StatefulSet", name))
		}
		stop()
		all, err := w.Client.CoreV1().PersistentVolumeClaims(w.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			if image != "one" && !first[all.Items[i].UID] {
				t.Errorf("claim %s is not the one of before", all.Items[i].Name)
			}
			first[all.Items[i].UID] = true
		}
	}
	for i := range many {
		if numbers, _ := w.history(fmt.Sprint("web", i)); fmt.Sprint(numbers) != "[1:one 2:two 3:three]" {
			t.Errorf("history of web%d: %s", i, numbers)
		}
	}
	cancel() // who is too many goes while others are ready, and is not looked for again
	<-watched
	for i := range many {
		w.patch(fmt.Sprint("web", i), `{"spec":{"replicas":1}}`)
	}
	for range 10 {
		stop := w.Control(append(ofStatefulSets, catalog.GarbageCollector, catalog.ClaimProtection)...)
		<-time.After(rand.N(300 * time.Millisecond))
		stop()
	}
	w.Control(append(ofStatefulSets, catalog.GarbageCollector, catalog.ClaimProtection)...)
	for i := range many {
		name := fmt.Sprint("web", i)
		w.rolled(name)
		w.awaitClaims(name, fmt.Sprintf("data-%s-0:StatefulSet", name))
	}
}

// watchOrder fails a test where a pod is made before all lower ones are ready, or goes while another one is missing that was there.
func watchOrder(t *testing.T, events watch.Interface) {
	ready := map[string]map[string]bool{}
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			return // the end
		}
		app, index := pod.Labels["app"], pod.Labels["apps.kubernetes.io/pod-index"]
		of := ready[app]
		if of == nil {
			of = map[string]bool{}
			ready[app] = of
		}
		before := of[index]
		of[index] = e.Type != watch.Deleted && pod.DeletionTimestamp == nil && pods.IsTrue(&pod.Status, corev1.PodReady)
		for other, is := range of {
			switch {
			case e.Type == watch.Added && other < index && !is:
				t.Errorf("%s was made while %s-%s was not ready", pod.Name, app, other)
			case before && !of[index] && other != index && !is:
				t.Errorf("%s goes while %s-%s is not ready", pod.Name, app, other)
			}
		}
	}
}

// claiming gives a set's members a claim.
func claiming(set *appsv1.StatefulSet) {
	set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}},
	}}}
}

// claims are those of a set with the kinds of their owners, by their names.
func (w *statefulSets) claims(app string) string {
	w.Helper()
	list, err := w.Client.CoreV1().PersistentVolumeClaims(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for i := range list.Items {
		said := list.Items[i].Name
		for _, owner := range list.Items[i].OwnerReferences {
			said += ":" + owner.Kind
		}
		all = append(all, said)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (w *statefulSets) awaitClaims(app, want string) {
	w.Helper()
	w.AwaitChange(func(context.Context) bool { return w.claims(app) == want },
		func() string { return fmt.Sprintf("claims %q, want %q", w.claims(app), want) }, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), w.namespace)
}

// TestClaimsOfMembers: members find their claims again, whose owners follow the policy, and they go when it says so and not before.
func TestClaimsOfMembers(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(everyPod)
	w.Control(append(ofStatefulSets, catalog.GarbageCollector, catalog.ClaimProtection)...)
	set := w.set("web", 3, "one", claiming)
	if c := set.Spec.VolumeClaimTemplates[0]; c.Status.Phase != corev1.ClaimPending || c.Spec.VolumeMode == nil {
		t.Errorf("the template is %+v", c)
	}
	w.rolled("web")
	w.awaitClaims("web", "data-web-0 data-web-1 data-web-2")
	pod, err := w.Client.CoreV1().Pods(w.namespace).Get(t.Context(), "web-1", metav1.GetOptions{})
	if err != nil || pod.Spec.Volumes[0].PersistentVolumeClaim == nil || pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-web-1" {
		t.Fatalf("pod %+v, %v", pod.Spec.Volumes, err)
	}
	w.patch("web", `{"spec":{"replicas":1}}`)
	w.rolled("web")
	w.expect("web", "web-0:one")
	w.awaitClaims("web", "data-web-0 data-web-1 data-web-2")

	w.patch("web", `{"spec":{"replicas":2,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete","whenDeleted":"Delete"}}}`)
	w.rolled("web")
	w.awaitClaims("web", "data-web-0:StatefulSet data-web-1:StatefulSet data-web-2")
	before, err := w.Client.CoreV1().PersistentVolumeClaims(w.namespace).Get(t.Context(), "data-web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.image("web", "two") // members are made anew, and have what they had
	w.rolled("web")
	if after, err := w.Client.CoreV1().PersistentVolumeClaims(w.namespace).Get(t.Context(), "data-web-1", metav1.GetOptions{}); err != nil || after.UID != before.UID {
		t.Errorf("the claim of before is %v, %v", after, err)
	}
	w.patch("web", `{"spec":{"replicas":1}}`)
	w.rolled("web")
	w.awaitClaims("web", "data-web-0:StatefulSet data-web-2")
	w.patch("web", `{"spec":{"replicas":2}}`)
	w.rolled("web")
	w.awaitClaims("web", "data-web-0:StatefulSet data-web-1:StatefulSet data-web-2")
	if err := w.Client.AppsV1().StatefulSets(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	w.awaitClaims("web", "data-web-2")
}

// TestKilledAtClaims: a controller dies before and after it makes a claim, and before it writes who owns one. The next one completes the set with the claims that
// there are, and what is to go with a surplus member goes.
func TestKilledAtClaims(t *testing.T) {
	w := newStatefulSets(t)
	w.Agent(everyPod)
	w.Control(catalog.GarbageCollector, catalog.ClaimProtection)
	var writes []string
	for _, name := range []string{"claim", "own", "create", "delete", "identify", "tell"} {
		writes = append(writes, "controllers/statefulset/"+name)
	}
	for _, c := range []struct {
		at, left string
	}{{"claim", ""}, {"claimed", "data-claimed-0"}, {"own", "data-own-0 data-own-1"}} {
		t.Run(c.at, func(t *testing.T) {
			scales := func(set *appsv1.StatefulSet) {
				set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
					WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				}
			}
			died, revive := apitest.Dies("controllers/statefulset/"+c.at, writes...)
			stop := w.Control(ofStatefulSets...)
			w.set(c.at, 2, "one", claiming, scales)
			if c.at == "own" { // which it does when there is one too many
				w.rolled(c.at)
				w.patch(c.at, `{"spec":{"replicas":1}}`)
			}
			<-died
			stop()
			revive()
			if left := w.claims(c.at); left != c.left {
				t.Errorf("left are %q, want %q", left, c.left)
			}
			stop = w.Control(ofStatefulSets...)
			defer stop()
			if c.at != "own" {
				w.rolled(c.at)
				w.awaitClaims(c.at, fmt.Sprintf("data-%[1]s-0 data-%[1]s-1", c.at))
				w.patch(c.at, `{"spec":{"replicas":1}}`)
			}
			w.rolled(c.at)
			w.awaitClaims(c.at, fmt.Sprintf("data-%s-0", c.at))
		})
	}
}
