package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/agent/status"
	"monopod.dev/monopod/internal/config"
)

// TestTheStatusOfAPodThatWasMadeAnew: the API server does not give a pod the status of the one that had its name before, and the agent's writer learns
// from its answer that there is nothing more to write.
func TestTheStatusOfAPodThatWasMadeAnew(t *testing.T) {
	dir, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	none := int32(0)
	c := &v1alpha1.NodeConfiguration{NodeName: "edge-1", DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run")}
	c.APIServer.Port, c.APIServer.Kubeconfig, c.APIServer.EtcdTick.Duration = &none, filepath.Join(dir, "kubeconfig"), 10*time.Millisecond
	config.Default(c, "edge-1")
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- APIServer(ctx, Options{Config: c, Log: log, OnReady: func() { close(ready) }}) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
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
	cfg, err := clientcmd.BuildConfigFromFlags("", c.APIServer.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pods := kube.CoreV1().Pods("default")
	off, zero := false, int64(0)
	create := func() *v1.Pod {
		pod, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.PodSpec{NodeName: "edge-1", AutomountServiceAccountToken: &off,
			Containers: []v1.Container{{Name: "a", Image: "a"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	old := create()
	if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	anew := create()

	w := status.New(kube, log)
	writing, stop := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() { defer close(written); w.Run(writing) }()
	defer func() { stop(); <-written }()
	w.Set(old, v1.PodStatus{Phase: v1.PodFailed, Message: "it is over"}, false)
	patience, enough := context.WithTimeout(t.Context(), time.Minute)
	defer enough()
	if err := w.Flush(patience, old.UID); err != nil {
		t.Errorf("the writer still tries: %v", err)
	}
	if now, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || now.UID != anew.UID || now.Status.Phase != v1.PodPending || now.Status.Message != "" {
		t.Errorf("the new pod is %+v, %v", now, err)
	}
}
