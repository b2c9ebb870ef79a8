package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/apitest"
)

const taintKey = "example.com/broken"

func tolerates(seconds ...int64) []corev1.Toleration {
	t := corev1.Toleration{Key: taintKey, Operator: corev1.TolerationOpExists}
	if len(seconds) > 0 {
		t.Effect, t.TolerationSeconds = corev1.TaintEffectNoExecute, &seconds[0]
	}
	return []corev1.Toleration{t}
}

func createTolerant(a *apitest.API, name string, tolerations []corev1.Toleration) {
	a.Helper()
	_, err := a.Client.CoreV1().Pods("default").Create(a.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: "n1", Tolerations: tolerations, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
}

func taintNode(a *apitest.API, patch string) {
	a.Helper()
	if _, err := a.Client.CoreV1().Nodes().Patch(a.Context(), "n1", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		a.Fatal(err)
	}
}

func awaitEviction(a *apitest.API, pod, message string) {
	a.Helper()
	var list *corev1.EventList
	for end := time.Now().Add(apitest.Timeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if list, err = a.Client.CoreV1().Events("default").List(a.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod}); err != nil {
			a.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == "TaintManagerEviction" && e.Message == message {
				return
			}
		}
	}
	a.Fatalf("no event of pod %s says %q: %+v", pod, message, list.Items)
}

func TestPodsLeaveATaintedNode(t *testing.T) {
	a := apitest.Start(t)
	if _, err := a.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createTolerant(a, "plain", nil)
	createTolerant(a, "tolerant", tolerates())
	createTolerant(a, "short", tolerates(1))
	createTolerant(a, "long", tolerates(3600))
	a.Control(catalog.TaintEviction)
	taintNode(a, `{"spec":{"taints":[{"key":"`+taintKey+`","effect":"NoExecute"}]}}`)
	deleted := func(o *metav1.PartialObjectMetadata) bool { return o != nil && o.DeletionTimestamp != nil }
	for _, name := range []string{"plain", "short"} {
		a.Await(podResource, "default", name, "deleted", deleted)
		pod, err := a.Client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c := pods.Condition(&pod.Status, corev1.DisruptionTarget); c == nil || c.Status != corev1.ConditionTrue || c.Reason != "DeletionByTaintManager" {
			t.Errorf("pod %s has the conditions %+v", name, pod.Status.Conditions)
		}
		awaitEviction(a, name, "Marking for deletion Pod default/"+name)
	}
	createTolerant(a, "newcomer", nil)
	a.Await(podResource, "default", "newcomer", "deleted", deleted)

	taintNode(a, `{"spec":{"taints":null}}`)
	awaitEviction(a, "long", "Cancelling deletion of Pod default/long")
	for _, name := range []string{"tolerant", "long"} {
		pod, err := a.Client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp != nil || len(pod.Status.Conditions) > 0 {
			t.Errorf("pod %s: %+v, %v", name, pod, err)
		}
	}
}
