package objects

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
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
	cm, err := Get[*v1.ConfigMap](t.Context(), s, Name{ConfigMap, "ns", "cm"})
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
	if _, err := Get[*v1.ConfigMap](t.Context(), s, Name{ConfigMap, "ns", "cm"}); !apierrors.IsNotFound(err) {
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
	if cm, err := Get[*v1.ConfigMap](t.Context(), s, Name{ConfigMap, "ns", "cm"}); err != nil || cm.Data["k"] != "one" {
		t.Errorf("got %v, %v", cm, err)
	}
	if _, err := Get[*v1.Secret](t.Context(), s, Name{Secret, "ns", "none"}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// What is not there is named once.
func TestAbsent(t *testing.T) {
	s := store(t, fake.NewClientset())
	for want, get := range map[string]func() error{
		`configmap "none" not found`: func() error { _, err := Get[*v1.ConfigMap](t.Context(), s, Name{ConfigMap, "ns", "none"}); return err },
		`secret "none" not found`:    func() error { _, err := Get[*v1.Secret](t.Context(), s, Name{Secret, "ns", "none"}); return err },
	} {
		if err := get(); !apierrors.IsNotFound(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
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

// TestOtherKinds: a kind that has no row is refused, and not taken for another.
func TestOtherKinds(t *testing.T) {
	s := store(t, fake.NewClientset(configMap("one")))
	if _, err := s.Get(t.Context(), Name{Kind("nodes"), "ns", "cm"}); err == nil || !strings.Contains(err.Error(), "nodes") {
		t.Errorf("got %v", err)
	}
	if _, err := Get[*v1.Secret](t.Context(), s, Name{ConfigMap, "ns", "cm"}); err == nil || !strings.Contains(err.Error(), "*v1.ConfigMap") {
		t.Errorf("a ConfigMap as a Secret: %v", err)
	}
}

// TestAsked: what a node may not watch is not held, and is read anew each time.
func TestAsked(t *testing.T) {
	claim := func(class string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class}}
	}
	kube := fake.NewClientset(claim("one"))
	s := store(t, kube)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
		{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}
	if names := References(pod); len(names) > 0 {
		t.Errorf("%v is to be held", names)
	}
	read := func(want string) {
		t.Helper()
		got, err := Get[*v1.PersistentVolumeClaim](t.Context(), s, Name{Claim, "ns", "c"})
		if err != nil || *got.Spec.StorageClassName != want {
			t.Errorf("got %v, %v, want the class %s", got, err, want)
		}
	}
	read("one")
	if _, err := kube.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), claim("two"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	read("two")
	if _, err := s.Get(t.Context(), Name{Claim, "ns", "none"}); !apierrors.IsNotFound(err) || err.Error() != `persistentvolumeclaim "none" not found` {
		t.Errorf("got %v", err)
	}
}
