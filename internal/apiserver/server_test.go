package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/controllers"
	"monopod.dev/monopod/internal/controllers/catalog"
)

// instance is a running server.
type instance struct {
	*apiserver.Server
	cfg  apiserver.Config
	stop func() error
}

// end stops the server, which must end in order.
func (i *instance) end(t testing.TB) {
	t.Helper()
	if err := i.stop(); err != nil {
		t.Errorf("the server did not end in order: %v", err)
	}
}

func (i *instance) client(t testing.TB, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	cfg.QPS = -1
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (i *instance) admin(t testing.TB) kubernetes.Interface { return i.client(t, i.AdminConfig()) }

// control runs controllers until stop is called, which returns when they have ended; those that finish what the API begins where none are named. No pod
// gets a node by these, and workloads are as they were written.
func (i *instance) control(t testing.TB, choice ...string) (stop func()) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", i.cfg.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if len(choice) == 0 {
		choice = []string{"*", "-" + catalog.Binder, "-" + catalog.ServiceAccount, "-" + catalog.RootCA} // the last two run since the start
		for _, name := range []string{
			catalog.Deployment, catalog.ReplicaSet, catalog.Replication, catalog.StatefulSet, catalog.DaemonSet,
			catalog.Job, catalog.TTLAfterFinished, catalog.CronJob, catalog.Disruption, catalog.Autoscaler,
		} {
			choice = append(choice, "-"+name)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- controllers.New(controllers.Config{Kube: config, Choice: choice, Log: i.cfg.Log}).Run(ctx)
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controllers ended with %v", err)
		}
	}
}

// directory is short, because etcd's socket is in it, and the kernel bounds the paths of sockets.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp-api-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newConfig(t testing.TB) apiserver.Config {
	t.Helper()
	cfg := configIn(directory(t))
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	return cfg
}

func start(t testing.TB, cfg apiserver.Config) *instance {
	t.Helper()
	s, err := apiserver.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, s, cfg)
}

// run runs a server and returns when it is ready.
func run(t testing.TB, s *apiserver.Server, cfg apiserver.Config) *instance {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	endControllers := func() {}
	i := &instance{Server: s, cfg: cfg, stop: func() error { endControllers(); cancel(); return <-done }}
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("the server ended before it was ready: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready after a minute")
	}
	t.Logf("ready after %v", time.Since(begin))
	endControllers = i.control(t, catalog.ServiceAccount, catalog.RootCA) // without them no pod is let into a namespace
	return i
}

func TestRunEndsCleanly(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	cfg := newConfig(t)
	var i *instance
	var took time.Duration
	for range 5 { // a slow machine takes longer now and then; who waits for clients does so each time
		i = start(t, cfg)
		if took = endBesideClients(t, i); took <= time.Second {
			break
		}
	}
	t.Logf("ended in %v", took)
	if took > time.Second {
		t.Errorf("the end took %v", took)
	}
	if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", i.Port())); err == nil {
		t.Error("the port is still open")
	}
	if _, err := os.Stat(filepath.Join(cfg.RunDir, "etcd", "etcd.sock")); err == nil {
		t.Error("etcd's socket is still there")
	}
	verifyNoGoroutines(t, ignore)
}

// endBesideClients ends a server and tells how long that took: a watch that is open, and a connection that says nothing, do not hold it up.
func endBesideClients(t *testing.T, i *instance) time.Duration {
	t.Helper()
	clientConfig, err := clientcmd.BuildConfigFromFlags("", i.cfg.Kubeconfig) // unlike AdminConfig, it reads no files for ever
	if err != nil {
		t.Fatal(err)
	}
	w, err := i.client(t, clientConfig).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	mute, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", i.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	begin := time.Now()
	i.end(t)
	return time.Since(begin)
}

// verifyNoGoroutines gives goroutines that end by a timer the time to.
func verifyNoGoroutines(t *testing.T, ignore goleak.Option) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = goleak.Find(ignore); err == nil {
			return
		}
	}
	t.Error(err)
}

// What was answered is there after a restart, and the credentials still work: after an orderly end, after Close, and
// after kill -9.
func TestRestart(t *testing.T) {
	cfg := newConfig(t)
	i := start(t, cfg)
	k := i.kubectl(t)
	k.run("create", "configmap", "first")
	i.end(t)

	i = start(t, cfg)
	k.run("get", "configmap", "first")
	k.run("create", "configmap", "second")
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	i.end(t) // Run has ended, too

	p := startProcess(t, filepath.Dir(cfg.DataDir))
	k.run("get", "configmap", "first", "second")
	k.run("create", "configmap", "third")
	k.run("create", "namespace", "doomed")
	k.feed(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/hold"]}}`, "-n", "doomed", "create", "-f", "-")
	k.run("delete", "namespace", "doomed", "--wait=false")
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()

	i = start(t, cfg)
	defer i.end(t)
	defer i.control(t)()
	k.run("get", "configmap", "first", "second", "third")
	// The deletion that was cut off goes on.
	k.run("-n", "doomed", "patch", "cm", "held", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	k.run("wait", "--for=delete", "namespace/doomed", "--timeout=10s")
}

// startProcess runs a server in a process of its own and returns when it is ready.
func startProcess(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), processEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := make([]byte, 16)
	if n, err := out.Read(line); err != nil || strings.TrimSpace(string(line[:n])) != "ready" {
		t.Fatalf("the process said %q (%v), want ready", line[:n], err)
	}
	return cmd
}

func TestBadStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	running := start(t, newConfig(t))
	defer running.end(t)
	for name, tc := range map[string]struct {
		change func(t *testing.T, cfg *apiserver.Config)
		want   string
	}{
		"port in use":   {func(_ *testing.T, cfg *apiserver.Config) { cfg.Port = portOf(taken.Addr()) }, "another process uses the port; stop it or choose another port"},
		"no such host":  {func(_ *testing.T, cfg *apiserver.Config) { cfg.BindAddress = "192.0.2.1" }, "this host has no such address"},
		"data in use":   {func(_ *testing.T, cfg *apiserver.Config) { cfg.DataDir = running.cfg.DataDir }, "is used by another process"},
		"no token file": {func(_ *testing.T, cfg *apiserver.Config) { cfg.TokenAuthFile = "/nonexistent/tokens" }, "token file /nonexistent/tokens"},
		"bad token file": {func(t *testing.T, cfg *apiserver.Config) {
			cfg.TokenAuthFile = filepath.Join(t.TempDir(), "tokens")
			if err := os.WriteFile(cfg.TokenAuthFile, []byte("only,two\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "its lines are token,user,uid"},
		"bad tick": {func(_ *testing.T, cfg *apiserver.Config) { cfg.EtcdTick = time.Hour }, "etcd's tick is 1h0m0s: use 1ms to 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig(t)
			tc.change(t, &cfg)
			if s, err := apiserver.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
				if s != nil {
					s.Close()
				}
			}
		})
	}
	// A start that failed has left nothing that hinders the next.
	running.kubectl(t).run("get", "namespaces")
}
