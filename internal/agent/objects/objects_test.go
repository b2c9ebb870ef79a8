package objects

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
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
	s := New(ctx, kube, slog.New(slog.DiscardHandler))
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

func podWithToken() *v1.Pod {
	seconds := int64(3600)
	src := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: v1.PodSpec{
		ServiceAccountName: "sa",
		Volumes:            []v1.Volume{{Name: "t", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{src}}}}},
	}}
}

// TestToken runs in a bubble with a clock of its own.
// What is not there is named once.
func TestAbsent(t *testing.T) {
	s := store(t, fake.NewClientset())
	for want, get := range map[string]func() error{
		`configmap "none" not found`: func() error { _, err := s.ConfigMap(t.Context(), "ns", "none"); return err },
		`secret "none" not found`:    func() error { _, err := s.Secret(t.Context(), "ns", "none"); return err },
	} {
		if err := get(); !apierrors.IsNotFound(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		asked, fails, life := 0, false, time.Hour
		kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if fails {
				return true, nil, apierrors.NewServiceUnavailable("down")
			}
			asked++
			req := a.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest).DeepCopy()
			if ref := req.Spec.BoundObjectRef; ref.Kind != "Pod" || ref.Name != "p" || ref.UID != "u" {
				t.Errorf("bound to %+v", ref)
			}
			req.Status = authv1.TokenRequestStatus{Token: strconv.Itoa(asked), ExpirationTimestamp: metav1.NewTime(time.Now().Add(life))}
			return true, req, nil
		})
		s := store(t, kube)
		pod := podWithToken()
		want := func(value string) {
			t.Helper()
			if got, err := s.Token(t.Context(), pod, pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken); got != value || (err == nil) != (value != "") {
				t.Fatalf("got %q, %v, want %q", got, err, value)
			}
		}
		dueIn := func(d time.Duration) {
			t.Helper()
			if due := time.Until(s.TokensDue(pod)); due < d-time.Second || due > d+time.Second {
				t.Errorf("due in %s, want %s", due, d)
			}
		}
		dueIn(0) // nobody knows how old the one is that the pod has
		dueIn(refreshPause)
		want("1")
		dueIn(48 * time.Minute)
		want("1")
		<-time.After(48*time.Minute + time.Second)
		want("2")
		<-time.After(49 * time.Minute)
		fails = true
		want("2") // until its end
		dueIn(refreshPause)
		<-time.After(11*time.Minute + time.Second)
		want("")
		fails, life = false, 1000*time.Hour
		want("3")
		dueIn(24 * time.Hour)
		s.Release("u")
		if len(s.tokens.held) > 0 {
			t.Error("the token of a pod that is gone is kept")
		}
		if due := s.TokensDue(&v1.Pod{}); !due.IsZero() {
			t.Errorf("a pod without tokens: due at %s", due)
		}
	})
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
