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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/apitest"
)

// ofDaemonSets are the controllers. The binder gives pods the nodes that they ask for.
var ofDaemonSets = []string{catalog.DaemonSet, catalog.Binder, catalog.PodGC}

// daemonSets is an API server with some nodes, and a namespace of its own.
type daemonSets struct {
	*apitest.API
	namespace string
}

func newDaemonSets(t *testing.T, nodes ...string) *daemonSets {
	t.Helper()
	w := &daemonSets{API: apitest.StartIn(t, "apps"), namespace: "apps"}
	for _, node := range nodes {
		w.node(node)
	}
	w.Agent(func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	return w
}

// node is one that is ready, and has room.
func (w *daemonSets) node(name string) {
	w.Helper()
	_, err := w.Client.CoreV1().Nodes().Create(w.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("200"), corev1.ResourceCPU: resource.MustParse("8")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// patchNode changes a node by a strategic merge patch.
func (w *daemonSets) patchNode(name, patch string) {
	w.Helper()
	if _, err := w.Client.CoreV1().Nodes().Patch(w.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// set is one of an image.
func (w *daemonSets) set(name, image string, change ...func(*appsv1.DaemonSet)) {
	w.Helper()
	of := map[string]string{"app": name}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: of}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		}},
	}
	for _, c := range change {
		c(set)
	}
	if _, err := w.Client.AppsV1().DaemonSets(w.namespace).Create(w.Context(), set, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// patch changes a set by a strategic merge patch.
func (w *daemonSets) patch(name, format string, args ...any) {
	w.Helper()
	apitest.Patch(w.API, w.Client.AppsV1().DaemonSets(w.namespace), name, format, args...)
}

func (w *daemonSets) image(name, image string) {
	w.Helper()
	w.patch(name, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
}

// await waits until a set is as wanted.
func (w *daemonSets) await(name, what string, wanted func(*appsv1.DaemonSet) bool) *appsv1.DaemonSet {
	w.Helper()
	return apitest.Become(w.API, appsv1.SchemeGroupVersion.WithResource("daemonsets"), w.namespace, w.Client.AppsV1().DaemonSets(w.namespace), name, what,
		func(set *appsv1.DaemonSet) bool {
			return set.Status.ObservedGeneration == set.Generation && wanted(set)
		},
		func(set *appsv1.DaemonSet) string { return fmt.Sprintf("%+v, pods %s", set.Status, w.pods(name)) })
}

// rolled waits until a set has an available pod of its template on so many nodes.
func (w *daemonSets) rolled(name string, nodes int32) *appsv1.DaemonSet {
	w.Helper()
	return w.await(name, fmt.Sprintf("complete on %d nodes", nodes), func(set *appsv1.DaemonSet) bool {
		st := set.Status
		return st.DesiredNumberScheduled == nodes && st.UpdatedNumberScheduled == nodes && st.NumberAvailable == nodes && st.NumberMisscheduled == 0
	})
}

// pods are a set's pods: their nodes, with their images.
func (w *daemonSets) pods(app string) string {
	w.Helper()
	list, err := w.Client.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Spec.NodeName+":"+list.Items[i].Spec.Containers[0].Image)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// settled waits until a set's pods are as wanted.
func (w *daemonSets) settled(app, want string) {
	w.Helper()
	w.AwaitChange(func(context.Context) bool { return w.pods(app) == want }, func() string { return fmt.Sprintf("pods %q, want %q", w.pods(app), want) },
		corev1.SchemeGroupVersion.WithResource("pods"), w.namespace)
}

func TestDaemonSetRollout(t *testing.T) {
	w := newDaemonSets(t, "a", "b")
	w.Control(ofDaemonSets...)
	w.set("web", "one")
	w.rolled("web", 2)
	w.settled("web", "a:one b:one")
	w.image("web", "two")
	w.rolled("web", 2)
	w.settled("web", "a:two b:two")
	w.node("c")
	w.rolled("web", 3)
	w.settled("web", "a:two b:two c:two")

	list, err := w.Client.AppsV1().ControllerRevisions(w.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var first *appsv1.ControllerRevision
	for i := range list.Items {
		if list.Items[i].Revision == 1 {
			first = &list.Items[i]
		}
	}
	if len(list.Items) != 2 || first == nil {
		t.Fatalf("history %+v", list.Items)
	}
	w.patch("web", "%s", first.Data.Raw) // what kubectl rollout undo does
	w.rolled("web", 3)
	w.settled("web", "a:one b:one c:one")
	if first, err = w.Client.AppsV1().ControllerRevisions(w.namespace).Get(t.Context(), first.Name, metav1.GetOptions{}); err != nil || first.Revision != 3 {
		t.Errorf("the first revision is %+v, error %v", first, err)
	}
	w.patch("web", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	w.image("web", "four")
	w.await("web", "none updated", func(set *appsv1.DaemonSet) bool { return set.Status.UpdatedNumberScheduled == 0 })
	if err := w.Client.CoreV1().Pods(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=b"}); err != nil {
		t.Fatal(err)
	}
	w.settled("web", "a:one b:four c:one")
}

// TestDaemonSetNodes: pods follow the labels and taints of nodes; a cordoned node has one, too.
func TestDaemonSetNodes(t *testing.T) {
	w := newDaemonSets(t, "a", "b", "c")
	w.Control(ofDaemonSets...)
	w.set("web", "one", func(set *appsv1.DaemonSet) { set.Spec.Template.Spec.NodeSelector = map[string]string{"web": "yes"} })
	w.rolled("web", 0)
	w.patchNode("a", `{"metadata":{"labels":{"web":"yes"}},"spec":{"unschedulable":true,"taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}`)
	w.patchNode("b", `{"metadata":{"labels":{"web":"yes"}}}`)
	w.rolled("web", 2)
	w.settled("web", "a:one b:one")
	w.patchNode("b", `{"spec":{"taints":[{"key":"mine","effect":"NoSchedule"}]}}`)
	w.await("web", "not where it would be put", func(set *appsv1.DaemonSet) bool {
		return set.Status.DesiredNumberScheduled == 1 && set.Status.NumberMisscheduled == 1 && set.Status.NumberAvailable == 1
	})
	w.patchNode("b", `{"spec":{"taints":[{"key":"mine","effect":"NoExecute"}]}}`)
	w.rolled("web", 1)
	w.settled("web", "a:one")
	w.patchNode("a", `{"metadata":{"labels":{"web":null}}}`)
	w.rolled("web", 0)
	w.settled("web", "")
}

// TestDaemonSetFailed: a pod that has failed is made anew, one that fails again only after a time, and people are told.
func TestDaemonSetFailed(t *testing.T) {
	w := newDaemonSets(t, "a")
	w.Control(ofDaemonSets...)
	w.set("web", "one")
	w.rolled("web", 1)
	client := w.Client.CoreV1().Pods(w.namespace)
	var failed []time.Time
	for range 3 {
		list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Fatal(err)
		}
		pod := list.Items[0]
		if _, err := client.Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		w.AwaitGone(corev1.SchemeGroupVersion.WithResource("pods"), w.namespace, pod.Name)
		failed = append(failed, time.Now())
		w.settled("web", "a:one")
	}
	if pause := failed[2].Sub(failed[1]); pause < time.Second {
		t.Errorf("the third one was deleted %v after the second one", pause)
	}
	w.AwaitChange(func(ctx context.Context) bool {
		events, err := w.Client.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedDaemonPod"})
		return err == nil && len(events.Items) > 0 && events.Items[0].Source.Component == "daemonset-controller"
	}, func() string { return "nobody is told" }, corev1.SchemeGroupVersion.WithResource("events"), w.namespace)
}

// TestDaemonSetRestarts: controllers that end at any moment, and begin anew, make no pod too many and forget none, while several sets roll at once: some with
// nodes that are missing one at a time, some with two pods on one node at a time.
func TestDaemonSetRestarts(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	const many = 8
	w := newDaemonSets(t, names...)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := w.Client.CoreV1().Pods(w.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		daemonSetWatchNodes(t, events, len(names))
	}()
	for i := range many {
		w.set(fmt.Sprintf("%s%d", []string{"miss", "surge"}[i%2], i), "one", func(set *appsv1.DaemonSet) {
			if i%2 == 1 {
				set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
				set.Spec.UpdateStrategy.RollingUpdate = surgeOfOne()
			}
		})
	}
	for _, image := range []string{"one", "two", "three"} {
		for i := range many {
			w.image(fmt.Sprintf("%s%d", []string{"miss", "surge"}[i%2], i), image)
		}
		for range 15 {
			stop := w.Control(ofDaemonSets...)
			<-time.After(rand.N(300 * time.Millisecond)) // any moment
			stop()
		}
		stop := w.Control(ofDaemonSets...)
		for i := range many {
			name := fmt.Sprintf("%s%d", []string{"miss", "surge"}[i%2], i)
			w.rolled(name, int32(len(names)))
			w.settled(name, fmt.Sprintf("a:%[1]s b:%[1]s c:%[1]s d:%[1]s", image))
		}
		stop()
	}
	cancel()
	<-watched
}

func surgeOfOne() *appsv1.RollingUpdateDaemonSet {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	return &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &one}
}

// daemonSetWatchNodes fails a test where a set has more pods than nodes (one more, if it surges), or fewer that are ready than nodes but one (as many, if it surges) once it
// has had one on each. Pods that are being deleted do not count.
func daemonSetWatchNodes(t *testing.T, events watch.Interface, nodes int) {
	has := map[string]map[types.UID]bool{}
	full := map[string]bool{}
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			return // the end
		}
		app := pod.Labels["app"]
		least, most := nodes-1, nodes
		if strings.HasPrefix(app, "surge") {
			least, most = nodes, nodes+1
		}
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
		full[app] = full[app] || ready >= nodes
		if n := len(has[app]); n > most || full[app] && ready < least {
			t.Errorf("%s has %d pods, %d of them ready, after %s of %s", app, n, ready, e.Type, pod.Name)
		}
	}
}
