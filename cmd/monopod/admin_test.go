package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/state"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares what a command has printed with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil { // a file of the sources
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s: printed:\n%s\nwant (%v):\n%s", name, got, err, want)
	}
}

// lines is a writer that a test can wait for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits for a text to be written.
func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	for end := time.After(time.Minute); !strings.Contains(l.String(), part); {
		select {
		case <-l.more:
		case <-end:
			t.Fatalf("waited in vain for %q in:\n%s", part, l)
		}
	}
}

// command runs a command line in this process.
func command(ctx context.Context, args ...string) (out, errs *lines, err error) {
	out, errs = newLines(), newLines()
	return out, errs, commandInto(ctx, out, errs, args...)
}

func commandInto(ctx context.Context, out, errs *lines, args ...string) error {
	root := newRootCommand()
	root.SetOut(out)
	root.SetErr(errs)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// adminRig is a served socket with a real device manager, and a host with pipes for devices.
type adminRig struct {
	t       *testing.T
	dir     string
	socket  string
	manager *devices.Manager
	stop    func() // ends the server
}

func newAdminRig(t *testing.T, status protocol.Status) *adminRig {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &adminRig{t: t, dir: dir, socket: filepath.Join(dir, protocol.SocketName)}
	if err := os.Mkdir(filepath.Join(dir, "cdi"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"w0", "w1", "w2", "gpu0"} {
		if err := unix.Mkfifo(r.path(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.spec("widget.json", "example.com/widget", "w0", "w1", "w2")
	r.spec("gpus.yaml", "vendor.example/gpu", "GPU-5c6e2c1a-1f6b-44a0-8f1d-0a7f3e21b9c4", "all")
	db, _, err := state.Open(state.Config{Path: filepath.Join(dir, "agent.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	log := slog.New(slog.DiscardHandler)
	if r.manager, err = devices.New(devices.Config{DB: db, CDI: cdi.Config{Dirs: []string{filepath.Join(dir, "cdi")}}, Boot: "one", Log: log}); err != nil {
		t.Fatal(err)
	}
	if err := r.manager.Reconcile(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	r.background("devices", r.manager.Run)
	s, err := admin.New(admin.Config{Socket: r.socket, Devices: r.manager, Log: log, Status: func(context.Context) protocol.Status { return status }})
	if err != nil {
		t.Fatal(err)
	}
	r.stop = r.background("admin", s.Run)
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("no socket")
	}
	return r
}

// background runs f until stop is called, or the test ends.
func (r *adminRig) background(name string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("%s: %v", name, err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

func (r *adminRig) path(name string) string { return filepath.Join(r.dir, name) }

// spec defines devices; their node is the pipe of their name, and that of GPUs gpu0.
func (r *adminRig) spec(file, kind string, names ...string) {
	r.t.Helper()
	var all []string
	for _, n := range names {
		node := r.path(n)
		if strings.HasPrefix(n, "GPU-") || n == "all" {
			node = r.path("gpu0")
		}
		all = append(all, fmt.Sprintf(`{"name": %q, "containerEdits": {"deviceNodes": [{"path": "/dev/%s", "hostPath": %q}], "env": ["N=%s"]}}`, n, n, node, n))
	}
	text := fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": %q, "devices": [%s]}`, kind, strings.Join(all, ", "))
	path := filepath.Join(r.dir, "cdi", file)
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		r.t.Fatal(err)
	}
}

// admit grants a pod its devices, and returns when they are on record: they are told of from then on.
func (r *adminRig) admit(pod string, containers ...devices.ContainerRequest) {
	r.t.Helper()
	v, err := r.manager.Admit(r.t.Context(), devices.PodRequest{UID: "uid-" + pod, Namespace: "default", Name: pod, Created: time.Unix(1, 0), Containers: containers})
	if err != nil || v.Phase != devices.Admitted {
		r.t.Fatalf("%+v, %v", v, err)
	}
	for _, c := range containers {
		if _, err := r.manager.Grant(r.t.Context(), source.Container{PodUID: "uid-" + pod, PodNamespace: "default", PodName: pod, Name: c.Name}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func asks(container string, role alloc.Role, resource string, n int64) devices.ContainerRequest {
	return devices.ContainerRequest{Name: container, Role: role, Resources: map[string]int64{resource: n}}
}

// neutral takes out what differs from run to run.
func (r *adminRig) neutral(s string) string { return strings.ReplaceAll(s, r.dir, "DIR") }
