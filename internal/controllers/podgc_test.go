package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"monopod.dev/monopod/internal/controllers/podgc"
	"monopod.dev/monopod/test/apitest"
)

func createPodOn(a *apitest.API, name, node string, finalizers ...string) {
	a.Helper()
	_, err := a.Client.CoreV1().Pods("default").Create(a.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
}

// runPodGC runs a controller until the test ends.
func runPodGC(a *apitest.API, config podgc.Config) {
	a.Helper()
	known := informers.NewSharedInformerFactory(a.Client, 0)
	config.Client, config.Nodes, config.Pods = a.Client, known.Core().V1().Nodes(), known.Core().V1().Pods()
	c, err := podgc.New(config)
	if err != nil {
		a.Fatal(err)
	}
	done := make(chan struct{})
	known.Start(a.Context().Done())
	go func() {
		defer close(done)
		if err := c.Run(a.Context()); err != nil {
			a.Error(err)
		}
	}()
	a.Cleanup(func() { <-done })
}

func createNode(a *apitest.API, name string) {
	a.Helper()
	if _, err := a.Client.CoreV1().Nodes().Create(a.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		a.Fatal(err)
	}
}

func TestPodsOfNodesThatAreGone(t *testing.T) {
	a := apitest.Start(t)
	createNode(a, "stays")
	createNode(a, "goes")
	createPodOn(a, "stays", "stays")
	createPodOn(a, "goes", "goes", "example.com/look")
	createPodOn(a, "lost", "never-was")
	runPodGC(a, podgc.Config{Patience: time.Second})
	a.AwaitGone(podResource, "default", "lost")

	if err := a.Client.CoreV1().Nodes().Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.Await(podResource, "default", "goes", "deleted", func(o *metav1.PartialObjectMetadata) bool { return o != nil && o.DeletionTimestamp != nil })
	pod, err := a.Client.CoreV1().Pods("default").Get(t.Context(), "goes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := pod.Status; s.Phase != corev1.PodFailed || len(s.Conditions) != 1 || s.Conditions[0].Type != corev1.DisruptionTarget || s.Conditions[0].Message != "PodGC: node no longer exists" {
		t.Errorf("status %+v", s)
	}
	if pod, err := a.Client.CoreV1().Pods("default").Get(t.Context(), "stays", metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
		t.Errorf("the pod of the node that stays: %+v, %v", pod, err)
	}
}

func TestPodsOfANodeOutOfService(t *testing.T) {
	a := apitest.Start(t)
	createNode(a, "n")
	createPodOn(a, "p", "n")
	createPodOn(a, "other", "n")
	runPodGC(a, podgc.Config{})
	if err := a.Client.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	taint := []byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}}`)
	if _, err := a.Client.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, taint, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	a.AwaitGone(podResource, "default", "p")
	if pod, err := a.Client.CoreV1().Pods("default").Get(t.Context(), "other", metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("the pod that is not deleted: %+v, %v", pod, err)
	}
}

func TestEndedPodsAreBounded(t *testing.T) {
	a := apitest.Start(t)
	createNode(a, "n")
	for _, name := range []string{"a", "b", "c", "runs"} {
		createPodOn(a, name, "n")
	}
	runPodGC(a, podgc.Config{Kept: 2})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := a.Client.CoreV1().Pods("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	a.AwaitGone(podResource, "default", "a")
	left, err := a.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 3 {
		t.Errorf("left are %d pods, want 3, %v", len(left.Items), err)
	}
}
