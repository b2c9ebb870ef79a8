package podsbynode

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func podOn(name, uid, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}}
}

// TestLoop: a loop on informers that run already is told of what there is, looks at what it is asked to, again after an error and after a time, and knows a pod that
// was made again under its name from the one before.
func TestLoop(t *testing.T) {
	kube := fake.NewClientset(podOn("a", "1", "n"), podOn("b", "2", "n"), podOn("c", "3", "other"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	known := informers.NewSharedInformerFactory(kube, 0)
	if err := Index(known.Core().V1().Pods().Informer()); err != nil {
		t.Fatal(err)
	}
	known.Core().V1().Nodes().Informer()
	ctx, cancel := context.WithCancel(t.Context())
	known.StartWithContext(ctx)
	known.WaitForCacheSyncWithContext(ctx)

	var mu sync.Mutex
	told := map[string]int{}
	news := make(chan string, 100)
	note := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		told[what]++
		news <- what
		return told[what]
	}
	await := func(what string, times int) {
		t.Helper()
		for {
			mu.Lock()
			n := told[what]
			mu.Unlock()
			if n >= times {
				return
			}
			select {
			case <-news:
			case <-time.After(time.Minute):
				t.Fatalf("%q comes %d times, not %d", what, n, times)
			}
		}
	}
	var l *Loop
	l = New(Config{
		Pods: known.Core().V1().Pods(), Nodes: known.Core().V1().Nodes(), Workers: 2, Log: slog.New(slog.DiscardHandler),
		PodChanged:  func(old, pod *corev1.Pod) { l.Look(Of(pod)) },
		PodGone:     func(pod *corev1.Pod) { note("gone " + string(pod.UID)) },
		NodeChanged: func(_, node *corev1.Node) { note("node " + node.Name) },
		NodeGone:    func(node *corev1.Node) { l.Each(node.Name, func(pod *corev1.Pod) { note("lost " + pod.Name) }) },
		Sync: func(_ context.Context, which Pod, pod *corev1.Pod) (time.Duration, error) {
			if pod == nil {
				note("none " + string(which.UID))
				return 0, nil
			}
			switch n := note("look " + string(pod.UID)); {
			case pod.Name == "a" && n == 1:
				return 0, errors.New("not yet")
			case pod.Name == "b" && n == 1:
				return time.Millisecond, nil
			}
			return 0, nil
		},
	})
	if err := l.Follow(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	await("node n", 1)
	await("look 1", 2)
	await("look 2", 2)
	await("look 3", 1)
	if err := kube.CoreV1().Nodes().Delete(ctx, "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("lost a", 1)
	await("lost b", 1)
	if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), podOn("c", "4", "other"), "ns"); err != nil {
		t.Fatal(err)
	}
	await("gone 3", 1)
	await("look 4", 1)
	l.Look(Pod{types.NamespacedName{Namespace: "ns", Name: "c"}, "3"})
	await("none 3", 1)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	known.Shutdown()
}

// TestDelete: a pod's status is told before it goes; one that is gone or another by then is no error, and is told from one that was deleted.
func TestDelete(t *testing.T) {
	kube := fake.NewClientset(podOn("a", "1", "n"))
	status := map[string]any{"phase": corev1.PodFailed}
	if deleted, err := Delete(t.Context(), kube, podOn("a", "1", "n"), status, metav1.DeleteOptions{}); !deleted || err != nil {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	var verbs []string
	for _, a := range kube.Actions() {
		verbs = append(verbs, a.GetVerb()+" "+a.GetSubresource())
	}
	if len(verbs) != 2 || verbs[0] != "patch status" || verbs[1] != "delete " {
		t.Errorf("done: %q", verbs)
	}
	if _, err := kube.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if deleted, err := Delete(t.Context(), kube, podOn("a", "1", "n"), status, metav1.DeleteOptions{}); deleted || err != nil {
		t.Errorf("one that is gone: deleted %v, %v", deleted, err)
	}
}
