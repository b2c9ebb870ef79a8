package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// TestTokenVolume: a pod waits for its token and says so; an agent that was started anew gives its pods new ones.
func TestTokenVolume(t *testing.T) {
	b := newBench(t)
	var up atomic.Bool
	var made atomic.Int64
	b.kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if !up.Load() {
			return true, nil, apierrors.NewNotFound(v1.Resource("serviceaccounts"), "robot")
		}
		req := a.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest).DeepCopy()
		req.Status = authv1.TokenRequestStatus{
			Token:               "token " + strconv.FormatInt(made.Add(1), 10),
			ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second)),
		}
		return true, req, nil
	})
	seconds, user := int64(3607), int64(1234)
	b.create(pod("p", func(p *v1.Pod) {
		p.Spec.ServiceAccountName = "robot"
		p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &user}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}}}}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}))
	b.eventually("it is told what is missing", func() bool { return b.events()["FailedMount"] > 0 })
	up.Store(true)
	b.status("p", "is ready", isReady)
	file := filepath.Join(b.dir, "pods", "uid-p", "volumes", "v", "token")
	content := func() string { data, _ := os.ReadFile(file); return string(data) }
	if content() != "token 1" {
		t.Errorf("content %q", content())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; it is one user's alone", info.Mode(), err)
	}
	b.stop()
	b.start()
	b.eventually("the pod has a new token", func() bool { return content() == "token 2" })
	b.delete("p", 0)
	b.nothingLeft("p")
}
