package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
)

type namespaces struct{ *apitest.API }

func (w namespaces) namespace(name string) {
	w.Helper()
	if _, err := w.Client.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	// Pods want it, and the controller that makes it is another one.
	if _, err := w.Client.CoreV1().ServiceAccounts(name).Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w namespaces) configMap(namespace, name string, finalizers ...string) {
	w.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
	if _, err := w.Client.CoreV1().ConfigMaps(namespace).Create(w.Context(), c, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// pod makes a pod; one with a node has to be ended by an agent.
func (w namespaces) pod(namespace, name, node string, grace int64, finalizers ...string) {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
	if _, err := w.Client.CoreV1().Pods(namespace).Create(w.Context(), p, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w namespaces) delete(namespace string) {
	w.Helper()
	if err := w.Client.CoreV1().Namespaces().Delete(w.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w namespaces) letGo(namespace, configMap string) {
	w.Helper()
	_, err := w.Client.CoreV1().ConfigMaps(namespace).Patch(w.Context(), configMap, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// untilCondition waits until a condition of a namespace is true with a message, or false where that is empty.
func (w namespaces) untilCondition(namespace string, of corev1.NamespaceConditionType, message string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), apitest.Timeout)
	defer cancel()
	client := w.Client.CoreV1().Namespaces()
	watcher, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace}) // begins with what is there
	if err != nil {
		w.Fatal(err)
	}
	defer watcher.Stop()
	var last *corev1.Namespace
	for e := range watcher.ResultChan() {
		ns, ok := e.Object.(*corev1.Namespace)
		if !ok {
			w.Fatalf("%+v", e.Object)
		}
		last = ns
		for _, c := range ns.Status.Conditions {
			if c.Type == of && (c.Status == corev1.ConditionTrue) == (message != "") && strings.HasPrefix(c.Message, message) {
				return
			}
		}
	}
	w.Fatalf("%s of %s does not become %q: %+v", of, namespace, message, last)
}

func TestANamespaceIsEmptied(t *testing.T) {
	w := namespaces{apitest.Start(t)}
	w.Control(catalog.Namespace)
	w.namespace("doomed")
	for i := range 600 { // more than the API server deletes or lists at a time
		w.configMap("doomed", fmt.Sprint("c", i))
	}
	w.pod("doomed", "p", "", 30)
	w.namespace("empty")
	w.delete("doomed")
	w.delete("empty")
	w.AwaitGone(namespaceResource, "", "doomed")
	w.AwaitGone(namespaceResource, "", "empty")
	w.namespace("doomed")
	list, err := w.Client.CoreV1().ConfigMaps("doomed").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("a new namespace has %d config maps of the old one (%v)", len(list.Items), err)
	}
}

// TestPodsGoFirstFromANamespace: what a pod uses is there until it has ended.
func TestPodsGoFirstFromANamespace(t *testing.T) {
	w := namespaces{apitest.Start(t)}
	w.Control(catalog.Namespace)
	w.namespace("doomed")
	w.pod("doomed", "p", "n", 30)
	w.configMap("doomed", "used")
	w.delete("doomed")
	w.Await(podResource, "doomed", "p", "deleted", func(o *metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp != nil })
	w.untilCondition("doomed", corev1.NamespaceContentRemaining, "Some resources are remaining: pods. has 1 resource instances")
	if _, err := w.Client.CoreV1().ConfigMaps("doomed").Get(t.Context(), "used", metav1.GetOptions{}); err != nil {
		t.Errorf("while the pod ends: %v", err)
	}
	// The agent tells that the pod has ended, which is within its grace period: nobody polls.
	begin := time.Now()
	if err := w.Client.CoreV1().Pods("doomed").Delete(t.Context(), "p", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(namespaceResource, "", "doomed")
	if took := time.Since(begin); took > 25*time.Second { // of a grace of 30 s
		t.Errorf("%v after the last pod: the controller slept on", took)
	}
}

func TestAnAgentThatDoesNotEndAPodIsTold(t *testing.T) {
	w := namespaces{apitest.Start(t)}
	w.Control(catalog.Namespace)
	w.namespace("doomed")
	w.pod("doomed", "p", "n", 1)
	w.delete("doomed")
	w.untilCondition("doomed", corev1.NamespaceDeletionContentFailure,
		"Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: doomed for gvr: /v1, Resource=pods")
	if err := w.Client.CoreV1().Pods("doomed").Delete(t.Context(), "p", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(namespaceResource, "", "doomed")
}

func TestFinalizersHoldANamespace(t *testing.T) {
	w := namespaces{apitest.Start(t)}
	w.Control(catalog.Namespace)
	w.namespace("doomed")
	w.configMap("doomed", "a", hold)
	w.configMap("doomed", "b", hold)
	w.configMap("doomed", "c")
	w.delete("doomed")
	const remaining = "Some content in the namespace has finalizers remaining: "
	w.untilCondition("doomed", corev1.NamespaceFinalizersRemaining, remaining+hold+" in 2 resource instances")
	w.untilCondition("doomed", corev1.NamespaceDeletionContentFailure, "")
	w.AwaitGone(configMapResource, "doomed", "c")
	w.letGo("doomed", "a")
	w.untilCondition("doomed", corev1.NamespaceFinalizersRemaining, remaining+hold+" in 1 resource instances")
	w.letGo("doomed", "b")
	w.AwaitGone(namespaceResource, "", "doomed")
}

func TestANewNamespaceControllerGoesOn(t *testing.T) {
	w := namespaces{apitest.Start(t)}
	w.namespace("doomed") // opens the connection that all clients of this configuration share
	before := goleak.IgnoreCurrent()
	stop := w.Control(catalog.Namespace)
	w.configMap("doomed", "held", hold)
	w.delete("doomed")
	w.untilCondition("doomed", corev1.NamespaceFinalizersRemaining, "Some content")
	stop()
	// The server's watch cache lets a timer of three seconds run out after a list.
	goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"))
	w.letGo("doomed", "held")
	w.Control(catalog.Namespace)
	w.AwaitGone(namespaceResource, "", "doomed")
}
