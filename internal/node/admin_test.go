package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/config"
)

// An API server alone tells what it knows over its administration socket, and what it does not.
func TestTheStatusOfAnAPIServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	none := int32(0)
	c := &v1alpha1.NodeConfiguration{NodeName: "edge-1", DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run")}
	c.APIServer.Port, c.APIServer.Kubeconfig, c.APIServer.EtcdTick.Duration = &none, filepath.Join(dir, "kubeconfig"), 10*time.Millisecond
	config.Default(c, "edge-1")
	aside := filepath.Join(c.DataDir, "state", "agent.db.damaged-20260101T000000.000000000Z")
	if err := os.MkdirAll(filepath.Dir(aside), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(aside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- APIServer(ctx, Options{Config: c, Version: "0.9", Log: slog.New(slog.DiscardHandler), OnReady: func() { close(ready) }})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(c.RunDir, protocol.APIServerSocketName)); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
	}()
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-time.After(5 * time.Minute):
		t.Fatal("it does not become ready")
	}
	createPod(t, c.APIServer.Kubeconfig)

	asked := client.New(filepath.Join(c.RunDir, protocol.APIServerSocketName))
	defer asked.Close()
	s, err := asked.Status(t.Context())
	// The pods are counted in the API server's cache, which comes a moment behind.
	for began := time.Now(); err == nil && s.Pods != nil && *s.Pods == (protocol.Pods{}) && time.Since(began) < time.Minute; {
		s, err = asked.Status(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.Node != "edge-1" || s.PID != os.Getpid() || s.Versions.Monopod != "0.9" || !strings.HasPrefix(s.Versions.Kubernetes, "v1.") || s.Versions.Kernel == "" {
		t.Errorf("%+v", s)
	}
	if len(s.Roles) != 1 || s.Roles[0].Name != "apiserver" || s.Roles[0].State != protocol.Ready || !strings.HasPrefix(s.Roles[0].Address, "https://127.0.0.1:") {
		t.Errorf("roles %+v", s.Roles)
	}
	if s.Pods == nil || *s.Pods != (protocol.Pods{Pending: 1}) || s.Devices != nil || s.Images != nil {
		t.Errorf("pods %+v, devices %+v, images %+v", s.Pods, s.Devices, s.Images)
	}
	if len(s.NotAsked) != 2 || s.NotAsked[0] != (protocol.Unknown{What: "devices", Why: "the role devices does not run in this process"}) || s.NotAsked[1].What != "images" {
		t.Errorf("not asked: %+v", s.NotAsked)
	}
	if len(s.Disks) != 2 || s.Disks[0].Path != c.DataDir || s.Disks[0].Size == 0 || s.Disks[0].Free == 0 ||
		s.Disks[0].Used+s.Disks[0].Free > s.Disks[0].Size { // what the file system keeps for root is neither
		t.Errorf("disks %+v", s.Disks)
	}
	found := false
	for _, p := range s.Problems {
		found = found || p.About == "state" && strings.Contains(p.Message, aside)
	}
	if !found {
		t.Errorf("problems %+v", s.Problems)
	}
	askTrace(t, asked)
}

// askTrace: an API server alone remembers its part of a pod's start, and says whose the rest is.
func askTrace(t *testing.T, asked *client.Client) {
	t.Helper()
	got, err := asked.Trace(t.Context(), "default", "a")
	if err != nil || got.UID == "" || len(got.Steps) != 2 || got.Steps[0].Step != "POST" || got.Steps[1].Step != "store" {
		t.Fatalf("%+v, %v", got, err)
	}
	if post, store := got.Steps[0], got.Steps[1]; post.End == nil || store.End == nil || post.End.Before(post.Begin) || store.Begin.Before(*post.End) || store.End.Before(store.Begin) {
		t.Errorf("%+v", got.Steps)
	}
	if len(got.NotAsked) != 1 || got.NotAsked[0].Why != "the role agent does not run in this process" {
		t.Errorf("not asked: %+v", got.NotAsked)
	}
	if _, err := asked.Trace(t.Context(), "default", "none"); !errdefs.IsNotFound(err) || err.Error() != "there is no pod default/none; 'kubectl get pods -A' lists all" {
		t.Errorf("of a pod that is not there: %v", err)
	}
	if _, err := asked.Trace(t.Context(), "elsewhere", "a"); !errdefs.IsNotFound(err) || err.Error() != "there is no pod elsewhere/a; a pod of that name is, or was, in namespace default: try -n default" {
		t.Errorf("of a pod in another namespace: %v", err)
	}
}

func createPod(t *testing.T, kubeconfig string) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	off := false
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.PodSpec{AutomountServiceAccountToken: &off, Containers: []v1.Container{{Name: "a", Image: "a"}}}}
	if _, err := kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
