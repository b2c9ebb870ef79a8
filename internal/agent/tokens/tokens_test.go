package tokens

import (
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func podWithToken() *v1.Pod {
	seconds := int64(3600)
	src := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: v1.PodSpec{
		ServiceAccountName: "sa",
		Volumes:            []v1.Volume{{Name: "t", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{src}}}}},
	}}
}

// TestToken runs in a bubble with a clock of its own.
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
		s := New(kube, slog.New(slog.DiscardHandler))
		pod := podWithToken()
		want := func(value string) {
			t.Helper()
			if got, err := s.Token(t.Context(), pod, pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken); got != value || (err == nil) != (value != "") {
				t.Fatalf("got %q, %v, want %q", got, err, value)
			}
		}
		dueIn := func(d time.Duration) {
			t.Helper()
			if due := time.Until(s.Due(pod)); due < d-time.Second || due > d+time.Second {
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
		s.Forget("u")
		if len(s.held) > 0 {
			t.Error("the token of a pod that is gone is kept")
		}
		if due := s.Due(&v1.Pod{}); !due.IsZero() {
			t.Errorf("a pod without tokens: due at %s", due)
		}
	})
}
