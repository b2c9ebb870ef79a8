package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"monopod.dev/monopod/internal/apiserver"
)

// processEnv makes the test binary an API server, in a process of its own that can be killed. Its value is the
// directory of the server.
const processEnv = "MONOPOD_TEST_APISERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(processEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if builtKubectl != "" {
		os.RemoveAll(builtKubectl)
	}
	os.Exit(code)
}

// serve runs a server until SIGTERM. It writes "ready" to its standard output when it is.
func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	cfg := configIn(dir)
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	begin := time.Now()
	s, err := apiserver.New(ctx, cfg)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-s.Ready():
			fmt.Println("ready")
			cfg.Log.Info("ready", "after", time.Since(begin))
		case <-ctx.Done():
		}
	}()
	return errors.Join(s.Run(ctx))
}

func configIn(dir string) apiserver.Config {
	cfg := apiserver.Config{
		DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"), BindAddress: "127.0.0.1",
		Kubeconfig: filepath.Join(dir, "kubeconfig"), EtcdTick: 10 * time.Millisecond, NodeName: "n1",
		NodeAddresses: []string{"127.0.0.1"},
	}
	if _, err := os.Stat(filepath.Join(dir, "tokens.csv")); err == nil {
		cfg.TokenAuthFile = filepath.Join(dir, "tokens.csv")
	}
	return cfg
}
