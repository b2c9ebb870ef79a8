package apiserver_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/internal/apiserver"
)

// instance is a running server.
type instance struct {
	*apiserver.Server
	cfg  apiserver.Config
	stop func() error
}

func newConfig(t testing.TB) apiserver.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp-api-") // short: etcd's socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return apiserver.Config{
		DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"), BindAddress: "127.0.0.1",
		Kubeconfig: filepath.Join(dir, "kubeconfig"), EtcdTick: 10 * time.Millisecond, NodeName: "n1",
		NodeAddresses: []string{"127.0.0.1"},
		Log:           slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func start(t testing.TB, cfg apiserver.Config) *instance {
	t.Helper()
	begin := time.Now()
	s, err := apiserver.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	built := time.Since(begin)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	i := &instance{Server: s, cfg: cfg, stop: func() error { cancel(); return <-done }}
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("the server ended before it was ready: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the server is not ready after 20 s")
	}
	t.Logf("New took %v, ready after %v", built, time.Since(begin))
	return i
}

func TestStart(t *testing.T) {
	i := start(t, newConfig(t))
	begin := time.Now()
	if err := i.stop(); err != nil {
		t.Error(err)
	}
	t.Logf("stopped in %v", time.Since(begin))
}
