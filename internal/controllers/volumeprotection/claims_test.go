package volumeprotection

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// TestSweep: the pods of a namespace are listed once for all claims that go, and a claim stays that the store shows a pod of, whatever the cache says.
func TestSweep(t *testing.T) {
	const many = 200
	going := func(name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, DeletionTimestamp: &metav1.Time{Time: time.Now()}, Finalizers: []string{ClaimFinalizer, "a/b"}}}
	}
	kube := fake.NewClientset(with("n", false))
	known := informers.NewSharedInformerFactory(kube, 0).Core().V1()
	c, err := NewClaims(ClaimsConfig{Client: kube, Claims: known.PersistentVolumeClaims(), Pods: known.Pods(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.queue.ShutDown)
	t.Cleanup(c.sweeps.ShutDown)
	for i := range many {
		claim := going(fmt.Sprint("c", i))
		if i == 0 {
			claim.Name = "p-v" // of the pod
		}
		if err := errors.Join(kube.Tracker().Add(claim), known.PersistentVolumeClaims().Informer().GetIndexer().Add(claim)); err != nil {
			t.Fatal(err)
		}
		if err := c.sync(t.Context(), cache.MetaObjectToName(claim)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.sweep(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	lists := 0
	for _, a := range kube.Actions() {
		if a.Matches("list", "pods") {
			lists++
		}
	}
	all, err := kube.CoreV1().PersistentVolumeClaims("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for i := range all.Items {
		if slices.Contains(all.Items[i].Finalizers, ClaimFinalizer) {
			kept = append(kept, all.Items[i].Name)
		}
	}
	if lists != 1 || !slices.Equal(kept, []string{"p-v"}) || len(c.going) > 0 {
		t.Errorf("%d lists of pods for %d claims; these are kept: %v, and these are still to go: %v", lists, many, kept, c.going)
	}

	kube.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no time") })
	c.goes(cache.NewObjectName("ns", "c1"))
	if err := c.sweep(t.Context(), "ns"); err == nil || len(c.going["ns"]) != 1 {
		t.Errorf("after a list that failed, %v, %v are to go", err, c.going)
	}
}
