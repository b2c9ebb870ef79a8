package nodestatus

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// withUIDs gives each Node that is made a UID, as an API server does.
func withUIDs(kube *fake.Clientset) {
	var made atomic.Int64
	kube.PrependReactor("create", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		a.(clienttesting.CreateAction).GetObject().(*v1.Node).UID = types.UID("uid-" + strconv.FormatInt(made.Add(1), 10))
		return false, nil, nil
	})
}

// watched waits until the node is watched: what happens between the list and the watch, the fake tells nobody.
func watched(t *testing.T, kube *fake.Clientset) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		for _, a := range kube.Actions() {
			if a.Matches("watch", "nodes") {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("the node is not watched")
		}
	}
}

// TestTheNodeIsDeleted: who deletes the Node object of a node that runs gets it back at once, and the lease is that one's.
func TestTheNodeIsDeleted(t *testing.T) {
	// An earlier run has made the first.
	kube, w := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-0"}}), &world{}
	withUIDs(kube)
	r, stop := run(t, kube, w)
	defer stop()
	watched(t, kube)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() { defer close(kept); KeepLease(ctx, kube, "n", r) }()
	defer func() { cancel(); <-kept }()

	ownedBy := func(uid types.UID) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
			l, err := kube.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "n", metav1.GetOptions{})
			if err == nil && len(l.OwnerReferences) == 1 && l.OwnerReferences[0].UID == uid && l.OwnerReferences[0].Name == "n" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the lease is not that of node %s: %+v, %v", uid, l, err)
			}
		}
	}
	for i, uid := range []types.UID{"uid-0", "uid-1", "uid-2"} {
		eventually(t, kube, "node "+string(uid)+" is ready", func(n *v1.Node) bool {
			return n.UID == uid && ready(n).Status == v1.ConditionTrue && n.Labels[v1.LabelHostname] == "n"
		})
		ownedBy(uid)
		if i < 2 {
			if err := kube.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAdopted: whose the node is is said of each object, before that is ready, until it has been heard; a provider's id that there is already stays.
func TestAdopted(t *testing.T) {
	kube, w := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-0"}}), &world{}
	withUIDs(kube)
	told, deaf := make(chan types.UID, 10), errors.New("the API server is deaf")
	r, stop := run(t, kube, w, func(c *Config) {
		c.ProviderID = "monopod://n"
		c.Adopted = func(_ context.Context, uid types.UID) error {
			n, err := kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil || n.UID != uid || n.Spec.ProviderID != "monopod://n" {
				t.Errorf("adopted is %s, there is %+v, %v", uid, n, err)
			}
			told <- uid
			err, deaf = deaf, nil
			return err
		}
	})
	defer stop()
	if a, b := <-told, <-told; a != "uid-0" || b != "uid-0" {
		t.Errorf("told of %s, %s", a, b)
	}
	<-r.Ready()
	watched(t, kube)
	if err := kube.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if a := <-told; a != "uid-1" {
		t.Errorf("told of %s", a)
	}
	eventually(t, kube, "it is ready", func(n *v1.Node) bool { return ready(n).Status == v1.ConditionTrue })
	if len(told) != 0 {
		t.Errorf("it is told again of %s", <-told)
	}

	kube = fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1.NodeSpec{ProviderID: "cloud://i-1"}})
	r, stop = run(t, kube, w, func(c *Config) { c.ProviderID = "monopod://n" })
	defer stop()
	<-r.Ready()
	if n, err := kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil || n.Spec.ProviderID != "cloud://i-1" {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestTheNodeIsGivenUp: who is told to be silent says at once that it is not.
func TestTheNodeIsGivenUp(t *testing.T) {
	kube, w := fake.NewClientset(), &world{}
	r, stop := run(t, kube, w)
	defer stop()
	<-r.Ready()
	watched(t, kube)
	for range 2 {
		n := eventually(t, kube, "it is ready", func(n *v1.Node) bool { return ready(n).Status == v1.ConditionTrue }).DeepCopy()
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = v1.ConditionUnknown, "NodeStatusUnknown"
		}
		if _, err := kube.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, kube, "all conditions are known", func(n *v1.Node) bool {
		for _, c := range n.Status.Conditions {
			if c.Status == v1.ConditionUnknown {
				return false
			}
		}
		return ready(n).Reason == "KubeletReady"
	})
}

func TestPatience(t *testing.T) {
	var p patience
	at := time.Now()
	for i, c := range []struct{ after, wait time.Duration }{
		{0, 0}, {time.Second, time.Second}, {time.Second, 2 * time.Second}, {2 * time.Second, 4 * time.Second}, {time.Minute, 8 * time.Second},
		{time.Minute, 16 * time.Second}, {time.Minute, 32 * time.Second}, {time.Minute, time.Minute}, {time.Minute, time.Minute}, {calmAfter, 0}, {0, time.Second},
	} {
		at = at.Add(c.after)
		p.made(at)
		if got := p.until().Sub(at); got != c.wait {
			t.Errorf("registration %d: the next one is made after %s, want %s", i, got, c.wait)
		}
	}
}
