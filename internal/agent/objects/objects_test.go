package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	name := Name{Kind: ConfigMap, Namespace: "ns", Name: "cm"}
	tick, wait := ticks()
	s.Hold("a", []Name{name}, tick)
	wait(t)
	if _, err := kube.CoreV1().ConfigMaps("ns").Update(t.Context(), configMap("two"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t)
	cm, err := Get[*v1.ConfigMap](t.Context(), s, Name{Kind: ConfigMap, Namespace: "ns", Name: "cm"})
	if err != nil || cm.Data["k"] != "two" {
		t.Errorf("got %v, %v", cm, err)
	}
	other, otherWait := ticks()
	s.Hold("b", []Name{name, {Kind: Secret, Namespace: "ns", Name: "s"}}, other)
	s.Hold("a", nil, nil)
	if err := kube.CoreV1().ConfigMaps("ns").Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	otherWait(t)
	if _, err := Get[*v1.ConfigMap](t.Context(), s, Name{Kind: ConfigMap, Namespace: "ns", Name: "cm"}); !apierrors.IsNotFound(err) {
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
	if cm, err := Get[*v1.ConfigMap](t.Context(), s, Name{Kind: ConfigMap, Namespace: "ns", Name: "cm"}); err != nil || cm.Data["k"] != "one" {
		t.Errorf("got %v, %v", cm, err)
	}
	if _, err := Get[*v1.Secret](t.Context(), s, Name{Kind: Secret, Namespace: "ns", Name: "none"}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// What is not there is named once.
func TestAbsent(t *testing.T) {
	s := store(t, fake.NewClientset())
	for want, get := range map[string]func() error{
		`configmap "none" not found`: func() error {
			_, err := Get[*v1.ConfigMap](t.Context(), s, Name{Kind: ConfigMap, Namespace: "ns", Name: "none"})
			return err
		},
		`secret "none" not found`: func() error {
			_, err := Get[*v1.Secret](t.Context(), s, Name{Kind: Secret, Namespace: "ns", Name: "none"})
			return err
		},
	} {
		if err := get(); !apierrors.IsNotFound(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestReferences(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: v1.PodSpec{
		NodeName:       "n",
		InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "a"}}}}}},
		Containers: []v1.Container{{Env: []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: "b"}}}}}}},
		Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "b"}}},
			{PodCertificate: &v1.PodCertificateProjection{}}, {PodCertificate: &v1.PodCertificateProjection{}},
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("roots")}}, {ClusterTrustBundle: &v1.ClusterTrustBundleProjection{SignerName: new("a.b/c")}},
		}}}}},
		ImagePullSecrets: []v1.LocalObjectReference{{Name: "c"}},
	}}
	got := References(pod)
	want := []Name{
		{Kind: Secret, Namespace: "ns", Name: "a"}, {Kind: ConfigMap, Namespace: "ns", Name: "b"}, {Kind: Secret, Namespace: "ns", Name: "c"},
		{Kind: CertificateRequest, Namespace: "ns", Selector: "spec.nodeName=n,spec.podName=p"}, {Kind: TrustBundle, Name: "roots"}, {Kind: TrustBundle, Selector: "spec.signerName=a.b/c"},
	}
	inOrder := func(a, b Name) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(got, inOrder)
	slices.SortFunc(want, inOrder)
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestOtherKinds: a kind that has no row is refused, and not taken for another.
func TestOtherKinds(t *testing.T) {
	s := store(t, fake.NewClientset(configMap("one")))
	if _, err := s.Get(t.Context(), Name{Kind: "nodes", Namespace: "ns", Name: "cm"}); err == nil || !strings.Contains(err.Error(), "nodes") {
		t.Errorf("got %v", err)
	}
	if _, err := Get[*v1.Secret](t.Context(), s, Name{Kind: ConfigMap, Namespace: "ns", Name: "cm"}); err == nil || !strings.Contains(err.Error(), "*v1.ConfigMap") {
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
		got, err := Get[*v1.PersistentVolumeClaim](t.Context(), s, Name{Kind: Claim, Namespace: "ns", Name: "c"})
		if err != nil || *got.Spec.StorageClassName != want {
			t.Errorf("got %v, %v, want the class %s", got, err, want)
		}
	}
	read("one")
	if _, err := kube.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), claim("two"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	read("two")
	if _, err := s.Get(t.Context(), Name{Kind: Claim, Namespace: "ns", Name: "none"}); !apierrors.IsNotFound(err) || err.Error() != `persistentvolumeclaim "none" not found` {
		t.Errorf("got %v", err)
	}
}

// TestSelection: what a selector finds is listed, asked for where it is not held, and as its watch brought it where it is.
func TestSelection(t *testing.T) {
	bundle := func(name string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "a.b/c"}}
	}
	kube := fake.NewClientset(bundle("a.b:c:1"))
	s := store(t, kube)
	name := TrustBundles(&v1.ClusterTrustBundleProjection{SignerName: new("a.b/c")})
	count := func(want int) {
		t.Helper()
		all, err := List[*certificatesv1.ClusterTrustBundle](t.Context(), s, name)
		if err != nil || len(all) != want {
			t.Errorf("%v, %v, want %d", all, err, want)
		}
	}
	count(1)
	asked := kube.Actions()[0].(clienttesting.ListAction).GetListRestrictions()
	if asked.Fields.String() != "spec.signerName=a.b/c" {
		t.Errorf("asked for %v", asked)
	}
	tick, wait := ticks()
	s.Hold("pod", []Name{name}, tick)
	wait(t)
	count(1)
	if _, err := kube.CertificatesV1().ClusterTrustBundles().Create(t.Context(), bundle("a.b:c:2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t)
	count(2)
	if _, err := List[*v1.Secret](t.Context(), s, name); err == nil {
		t.Error("bundles are secrets")
	}
	if _, err := s.List(t.Context(), Name{Kind: Claim, Namespace: "ns", Selector: "a=b"}); err == nil {
		t.Error("claims are listed, which a node may not")
	}
}
