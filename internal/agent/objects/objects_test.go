package objects

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func store(t *testing.T, kube *fake.Clientset) *Store {
	ctx, cancel := context.WithCancel(t.Context())
	s := New(ctx, kube)
	t.Cleanup(func() { cancel(); s.Wait() })
	return s
}

func configMap(value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"k": value}}
}

// ticks counts the calls of a holder.
func ticks() (tick func(), wait func(*testing.T)) {
	c := make(chan struct{}, 100)
	return func() { c <- struct{}{} }, func(t *testing.T) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal("the holder was not told")
		}
	}
}

func TestHold(t *testing.T) {
	kube := fake.NewClientset(configMap("one"))
	s := store(t, kube)
	name := Name{ConfigMap, "ns", "cm"}
	tick, wait := ticks()
	s.Hold("a", []Name{name}, tick)
	wait(t)
	if _, err := kube.CoreV1().ConfigMaps("ns").Update(t.Context(), configMap("two"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t)
	cm, err := s.ConfigMap(t.Context(), "ns", "cm")
	if err != nil || cm.Data["k"] != "two" {
		t.Errorf("got %v, %v", cm, err)
	}
	other, otherWait := ticks()
	s.Hold("b", []Name{name, {Secret, "ns", "s"}}, other)
	s.Hold("a", nil, nil)
	if err := kube.CoreV1().ConfigMaps("ns").Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	otherWait(t)
	if _, err := s.ConfigMap(t.Context(), "ns", "cm"); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted object: %v", err)
	}
	s.Release("b")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries)+len(s.held) > 0 {
		t.Errorf("still held: %v", s.held)
	}
}

// TestNotHeld: what nobody holds is read from the API server.
func TestNotHeld(t *testing.T) {
	s := store(t, fake.NewClientset(configMap("one")))
	if cm, err := s.ConfigMap(t.Context(), "ns", "cm"); err != nil || cm.Data["k"] != "one" {
		t.Errorf("got %v, %v", cm, err)
	}
	if _, err := s.Secret(t.Context(), "ns", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestToken(t *testing.T) {
	kube := fake.NewClientset()
	asked := 0
	kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		req := a.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest).DeepCopy()
		req.Status = authv1.TokenRequestStatus{Token: "t", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
		return true, req, nil
	})
	s := store(t, kube)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: v1.PodSpec{ServiceAccountName: "sa"}}
	src := &v1.ServiceAccountTokenProjection{Path: "token"}
	for range 3 {
		if got, err := s.Token(t.Context(), pod, src); got != "t" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times for a token that is good", asked)
	}
	if due := time.Until(s.TokensDue("u")); due < 40*time.Minute || due > 50*time.Minute {
		t.Errorf("due in %s", due)
	}
	s.Release("u")
	if !s.TokensDue("u").IsZero() {
		t.Error("the token of a pod that is gone is kept")
	}
}

func TestReferences(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "a"}}}}}},
		Containers: []v1.Container{{Env: []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: "b"}}}}}}},
		Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "b"}}}}}}}},
		ImagePullSecrets: []v1.LocalObjectReference{{Name: "c"}},
	}}
	got := References(pod)
	want := []Name{{Secret, "ns", "a"}, {ConfigMap, "ns", "b"}, {Secret, "ns", "c"}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %v", got)
	}
}
