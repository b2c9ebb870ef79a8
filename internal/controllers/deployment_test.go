package controllers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/apitest"
)

// deployments is an API server with the controllers of deployments and replica sets, and a namespace of its own.
type deployments struct {
	*apitest.API
	namespace string
}

func newDeployments(t *testing.T) *deployments {
	t.Helper()
	return &deployments{API: apitest.StartIn(t, "apps"), namespace: "apps"}
}

// ofDeployments are the controllers. A deletion that ends before its answer may leave a pod without a node that is deleted and stays: that is the pod collector's.
var ofDeployments = []string{catalog.Deployment, catalog.ReplicaSet, catalog.Replication, catalog.PodGC}

// deployment is one of so many pods of an image.
func (w *deployments) deployment(name string, replicas int32, image string, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.Helper()
	of := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: of}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		}},
	}
	for _, c := range change {
		c(d)
	}
	d, err := w.Client.AppsV1().Deployments(w.namespace).Create(w.Context(), d, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return d
}

// patch changes a deployment by a strategic merge patch.
func (w *deployments) patch(name, format string, args ...any) {
	w.Helper()
	apitest.Patch(w.API, w.Client.AppsV1().Deployments(w.namespace), name, format, args...)
}

func (w *deployments) image(name, image string) {
	w.Helper()
	w.patch(name, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
}

// await waits until a deployment is as wanted.
func (w *deployments) await(name, what string, wanted func(*appsv1.Deployment) bool) *appsv1.Deployment {
	w.Helper()
	return apitest.Become(w.API, appsv1.SchemeGroupVersion.WithResource("deployments"), w.namespace, w.Client.AppsV1().Deployments(w.namespace), name, what, wanted,
		func(d *appsv1.Deployment) string { return fmt.Sprintf("%+v", d.Status) })
}

// rolled waits until all pods of a deployment are of its template, and available.
func (w *deployments) rolled(name string) *appsv1.Deployment {
	w.Helper()
	return w.await(name, "complete", isRolled)
}

// pods are the pods of an application by their images.
func (w *deployments) pods(app string) map[string]int {
	w.Helper()
	list, err := w.Client.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		w.Fatal(err)
	}
	images := map[string]int{}
	for i := range list.Items {
		images[list.Items[i].Spec.Containers[0].Image]++
	}
	return images
}

func (w *deployments) sets(app string) map[string]*appsv1.ReplicaSet {
	w.Helper()
	list, err := w.Client.AppsV1().ReplicaSets(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		w.Fatal(err)
	}
	sets := map[string]*appsv1.ReplicaSet{}
	for i := range list.Items {
		sets[list.Items[i].Spec.Template.Spec.Containers[0].Image] = &list.Items[i]
	}
	return sets
}

func TestDeploymentRollout(t *testing.T) {
	w := newDeployments(t)
	w.Agent(everyPod)
	w.Control(ofDeployments...)
	w.deployment("web", 3, "one")
	d := w.rolled("web")
	if d.Annotations["deployment.kubernetes.io/revision"] != "1" {
		t.Errorf("annotations %v", d.Annotations)
	}
	w.image("web", "two")
	w.rolled("web")
	if got := fmt.Sprint(w.pods("web")); got != "map[two:3]" {
		t.Errorf("pods %s", got)
	}
	w.patch("web", `{"spec":{"replicas":5}}`)
	w.rolled("web")
	first := w.sets("web")["one"]
	w.image("web", "one") // back to the first one: it is not made anew
	d = w.rolled("web")
	sets := w.sets("web")
	if len(sets) != 2 || sets["one"].UID != first.UID || sets["one"].Annotations["deployment.kubernetes.io/revision"] != "3" ||
		sets["one"].Annotations["deployment.kubernetes.io/revision-history"] != "1" || d.Annotations["deployment.kubernetes.io/revision"] != "3" {
		t.Errorf("replica sets %+v of the deployment %v", sets, d.Annotations)
	}
	w.patch("web", `{"spec":{"replicas":0}}`)
	w.rolled("web")
	if got := w.pods("web"); len(got) != 0 {
		t.Errorf("pods %v", got)
	}
}

// TestDeploymentRolloutStops: a template whose pods are never ready takes no more pods from the old one than may be missing, and its deadline passes.
func TestDeploymentRolloutStops(t *testing.T) {
	w := newDeployments(t)
	w.Agent(func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image != "bad" })
	w.Control(ofDeployments...)
	w.deployment("web", 4, "good", func(d *appsv1.Deployment) {
		one, two := intstr.FromInt32(1), intstr.FromInt32(2)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &one, MaxSurge: &two}
		d.Spec.ProgressDeadlineSeconds = new(int32)
		*d.Spec.ProgressDeadlineSeconds = 1
	})
	w.rolled("web")
	w.image("web", "bad")
	w.await("web", "timed out", func(d *appsv1.Deployment) bool {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded" {
				return true
			}
		}
		return false
	})
	// The second of its deadline may be over before the last pod is made.
	got := ""
	w.AwaitChange(func(context.Context) bool {
		got = fmt.Sprint(w.pods("web"))
		return got == "map[bad:3 good:3]"
	}, func() string { return "pods " + got }, corev1.SchemeGroupVersion.WithResource("pods"), w.namespace)
	w.image("web", "good")
	w.rolled("web")
	if got := fmt.Sprint(w.pods("web")); got != "map[good:4]" {
		t.Errorf("pods %s", got)
	}
}

// TestDeploymentRecreate: no pod of the new template is there while one of the old is.
func TestDeploymentRecreate(t *testing.T) {
	w := newDeployments(t)
	w.Agent(everyPod)
	w.Control(ofDeployments...)
	w.deployment("web", 3, "one", func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	w.rolled("web")
	events, err := w.Client.CoreV1().Pods(w.namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	w.image("web", "two")
	w.rolled("web")
	gone := 0
	for e := range events.ResultChan() {
		pod := e.Object.(*corev1.Pod)
		switch {
		case e.Type == watch.Deleted:
			gone++
		case pod.Spec.Containers[0].Image == "two":
			if gone != 3 {
				t.Errorf("pod %s was made when %d of 3 old ones were gone", pod.Name, gone)
			}
			return
		}
	}
}

func TestDeploymentPaused(t *testing.T) {
	w := newDeployments(t)
	w.Agent(everyPod)
	w.Control(ofDeployments...)
	w.deployment("web", 2, "one")
	w.rolled("web")
	w.patch("web", `{"spec":{"paused":true,"replicas":3,"template":{"spec":{"containers":[{"name":"c","image":"two"}]}}}}`)
	w.await("web", "scaled, paused", func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == 3 && d.Status.UpdatedReplicas == 0
	})
	if got := fmt.Sprint(w.pods("web")); got != "map[one:3]" {
		t.Errorf("pods %s", got)
	}
	w.patch("web", `{"spec":{"paused":false}}`)
	w.rolled("web")
	if got := fmt.Sprint(w.pods("web")); got != "map[two:3]" {
		t.Errorf("pods %s", got)
	}
}

// TestDeploymentAdoption: a replica set takes over pods that its selector matches, and a deployment replica sets; who does not match any more is let go and replaced.
func TestDeploymentAdoption(t *testing.T) {
	w := newDeployments(t)
	w.Agent(everyPod)
	_, err := w.Client.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: map[string]string{"app": "set"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	two := int32(2)
	set, err := w.Client.AppsV1().ReplicaSets(w.namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Labels: map[string]string{"app": "set"}},
		Spec: appsv1.ReplicaSetSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "set"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Control(ofDeployments...)
	sets := appsv1.SchemeGroupVersion.WithResource("replicasets")
	w.AwaitChange(func(ctx context.Context) bool {
		set, err = w.Client.AppsV1().ReplicaSets(w.namespace).Get(ctx, "set", metav1.GetOptions{})
		return err == nil && set.Status.AvailableReplicas == 2
	}, func() string { return fmt.Sprintf("the replica set's status is %+v", set.Status) }, sets, w.namespace)
	if bare, err := w.Client.CoreV1().Pods(w.namespace).Get(t.Context(), "bare", metav1.GetOptions{}); err != nil || !metav1.IsControlledBy(bare, set) {
		t.Fatalf("the bare pod belongs to %v, error %v", bare.OwnerReferences, err)
	}
	w.deployment("set", 2, "one")
	d := w.rolled("set")
	if set, err = w.Client.AppsV1().ReplicaSets(w.namespace).Get(t.Context(), "set", metav1.GetOptions{}); err != nil || !metav1.IsControlledBy(set, d) {
		t.Fatalf("the replica set belongs to %v, error %v", set.OwnerReferences, err)
	}
	if _, err := w.Client.CoreV1().Pods(w.namespace).Patch(t.Context(), "bare", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Await(corev1.SchemeGroupVersion.WithResource("pods"), w.namespace, "bare", "free", func(o *metav1.PartialObjectMetadata) bool { return o != nil && len(o.OwnerReferences) == 0 })
	w.AwaitChange(func(context.Context) bool { return w.pods("set")["one"] == 2 }, func() string { return "no other pod takes its place" }, sets, w.namespace)
}

// TestDeploymentRefused: pods that the API server refuses are told of in conditions and events, and made when it does not any more.
func TestDeploymentRefused(t *testing.T) {
	w := newDeployments(t)
	w.Agent(everyPod)
	w.Control(ofDeployments...)
	w.deployment("web", 2, "one", func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "later" })
	w.await("web", "failing", func(d *appsv1.Deployment) bool {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Reason == "FailedCreate" && strings.Contains(c.Message, `"later" not found`) {
				return true
			}
		}
		return false
	})
	if _, err := w.Client.CoreV1().ServiceAccounts(w.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.rolled("web").Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure {
			t.Errorf("the condition stays: %+v", c)
		}
	}
}

// TestDeploymentRestarts: controllers that end at any moment, and begin anew, make no pod too many and forget none, while many deployments roll at once.
func TestDeploymentRestarts(t *testing.T) {
	const many, replicas = 20, 5
	w := newDeployments(t)
	w.Agent(everyPod)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := w.Client.CoreV1().Pods(w.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan struct{})
	go func() { // never more pods than wanted and one, and never fewer that are ready than wanted but one, when so many were once
		defer close(watched)
		watchBounds(t, events, replicas-1, replicas+1)
	}()
	for i := range many {
		w.deployment(fmt.Sprint("web", i), replicas, "one", byOne)
	}
	for _, image := range []string{"one", "two", "three"} {
		for i := range many {
			w.image(fmt.Sprint("web", i), image)
		}
		for range 15 {
			stop := w.Control(ofDeployments...)
			<-time.After(rand.N(300 * time.Millisecond)) // any moment
			stop()
		}
		stop := w.Control(ofDeployments...)
		for i := range many {
			w.rolled(fmt.Sprint("web", i))
			if got, want := fmt.Sprint(w.pods(fmt.Sprint("web", i))), fmt.Sprintf("map[%s:%d]", image, replicas); got != want {
				t.Errorf("web%d has %s, want %s", i, got, want)
			}
		}
		stop()
	}
	cancel()
	<-watched
}

// TestManyDeploymentsRollAtOnce: 20 deployments (100 with MONOPOD_MANY=1) of 5 pods that come, and roll, at once end right: each has its pods, none of which was made twice, never more than it may
// have, and the old replica sets have none.
func TestManyDeploymentsRollAtOnce(t *testing.T) {
	const replicas = 5
	many := 20
	if os.Getenv("MONOPOD_MANY") != "" {
		many = 100
	}
	w := newDeployments(t)
	w.Agent(everyPod)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := w.Client.CoreV1().Pods(w.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]map[types.UID]bool{} // by deployment and image
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watchBounds(t, noted{events, made}, replicas-1, replicas+1)
	}()
	w.Control(ofDeployments...)
	begin := time.Now()
	for i := range many {
		w.deployment(fmt.Sprint("web", i), replicas, "one", byOne)
	}
	for _, image := range []string{"one", "two"} {
		if image != "one" {
			begin = time.Now()
			for i := range many {
				w.image(fmt.Sprint("web", i), image)
			}
		}
		w.allRolled(many)
		for i := range many {
			name := fmt.Sprint("web", i)
			if got, want := fmt.Sprint(w.pods(name)), fmt.Sprintf("map[%s:%d]", image, replicas); got != want {
				t.Errorf("%s has %s, want %s", name, got, want)
			}
			for is, set := range w.sets(name) {
				want := int32(0)
				if is == image {
					want = replicas
				}
				if *set.Spec.Replicas != want || set.Status.Replicas != want || set.Status.ObservedGeneration != set.Generation {
					t.Errorf("the replica set %s of %s is to have %d pods and has %d, want %d", set.Name, is, *set.Spec.Replicas, set.Status.Replicas, want)
				}
			}
		}
		t.Logf("%s: %v", image, time.Since(begin))
	}
	cancel()
	<-watched
	for of, uids := range made {
		if len(uids) != replicas {
			t.Errorf("%d pods of %s were made, want %d", len(uids), of, replicas)
		}
	}
	if len(made) != 2*many {
		t.Errorf("pods of %d templates were made, want %d", len(made), 2*many)
	}
}

// allRolled waits until so many deployments are complete. They are asked for together, now and then: a watch for each would be most of the work.
func (w *deployments) allRolled(many int) {
	w.Helper()
	for end := time.Now().Add(5 * apitest.Timeout); ; time.Sleep(200 * time.Millisecond) {
		list, err := w.Client.AppsV1().Deployments(w.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		var left []string
		for i := range list.Items {
			if d := &list.Items[i]; !isRolled(d) {
				left = append(left, fmt.Sprintf("%s %+v", d.Name, d.Status))
			}
		}
		if len(list.Items) == many && len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%d of %d deployments are not complete: %v", len(left), len(list.Items), left)
		}
	}
}

// isRolled says whether all pods of a deployment are of its template, and available.
func isRolled(d *appsv1.Deployment) bool {
	n := *d.Spec.Replicas
	return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == n && d.Status.Replicas == n && d.Status.AvailableReplicas == n
}

// byOne has a deployment roll by one pod more, and one fewer, than it wants.
func byOne(d *appsv1.Deployment) {
	one := intstr.FromInt32(1)
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &one}
}

// noted is a watch of pods that notes which were there.
type noted struct {
	watch.Interface
	made map[string]map[types.UID]bool
}

func (n noted) ResultChan() <-chan watch.Event {
	events := make(chan watch.Event)
	go func() {
		defer close(events)
		for e := range n.Interface.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				of := pod.Labels["app"] + " " + pod.Spec.Containers[0].Image
				if n.made[of] == nil {
					n.made[of] = map[types.UID]bool{}
				}
				n.made[of][pod.UID] = true
			}
			events <- e
		}
	}()
	return events
}

// watchBounds fails a test where an application has fewer pods that are ready than it may, once it has had that many, or more pods than it may. Pods that
// are being deleted do not count.
func watchBounds(t *testing.T, events watch.Interface, least, most int) {
	has := map[string]map[types.UID]bool{}
	full := map[string]bool{}
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			return // the end
		}
		app := pod.Labels["app"]
		if has[app] == nil {
			has[app] = map[types.UID]bool{}
		}
		if e.Type == watch.Deleted || pod.DeletionTimestamp != nil {
			delete(has[app], pod.UID)
		} else {
			has[app][pod.UID] = pods.IsTrue(&pod.Status, corev1.PodReady)
		}
		ready := 0
		for _, is := range has[app] {
			if is {
				ready++
			}
		}
		full[app] = full[app] || ready >= least
		if n := len(has[app]); n > most || full[app] && ready < least {
			t.Errorf("%s has %d pods, %d of them ready, after %s of %s", app, n, ready, e.Type, pod.Name)
		}
	}
}

// TestReplicationController is that of a replication controller, which differs in its object alone.
func TestReplicationController(t *testing.T) {
	w := newDeployments(t)
	w.Agent(everyPod)
	w.Control(ofDeployments...)
	three := int32(3)
	_, err := w.Client.CoreV1().ReplicationControllers(w.namespace).Create(t.Context(), &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "rc"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &three, Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "rc"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rc *corev1.ReplicationController
	w.AwaitChange(func(ctx context.Context) bool {
		rc, err = w.Client.CoreV1().ReplicationControllers(w.namespace).Get(ctx, "rc", metav1.GetOptions{})
		return err == nil && rc.Status.AvailableReplicas == 3 && rc.Status.ObservedGeneration == rc.Generation
	}, func() string { return fmt.Sprintf("the status is %+v", rc.Status) }, corev1.SchemeGroupVersion.WithResource("replicationcontrollers"), w.namespace)
	if err := w.Client.CoreV1().Pods(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	w.AwaitChange(func(context.Context) bool { return w.pods("rc")["one"] == 3 }, func() string { return "the pods are not made anew" },
		corev1.SchemeGroupVersion.WithResource("replicationcontrollers"), w.namespace)
}
