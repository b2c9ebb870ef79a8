// Package clitest is what tests of commands share: Golden files, what a Command prints, and a node's administration socket with devices.
package clitest

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

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/state"
)

var rewrite = flag.Bool("rewrite", false, "write the Golden files anew")

// Golden compares what a Command has printed with testdata/NAME.
func Golden(t *testing.T, name, got string) {
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

// Lines is a writer that a test can wait for.
type Lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

// NewLines returns a writer with nothing in it.
func NewLines() *Lines { return &Lines{more: make(chan struct{}, 1)} }

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// String is all that was written.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Await waits for a text to be written.
func (l *Lines) Await(t *testing.T, part string) {
	t.Helper()
	for end := time.After(time.Minute); !strings.Contains(l.String(), part); {
		select {
		case <-l.more:
		case <-end:
			t.Fatalf("waited in vain for %q in:\n%s", part, l)
		}
	}
}

// Root is a root command that has this one alone.
func Root(command *cobra.Command) *cobra.Command { return cli.Root("monopod", "", "", "test", command) }

// Command runs a command line of the root command in this process.
func Command(ctx context.Context, root *cobra.Command, args ...string) (out, errs *Lines, err error) {
	out, errs = NewLines(), NewLines()
	return out, errs, CommandInto(ctx, root, out, errs, args...)
}

// CommandInto is Command, with writers that a test can look at meanwhile.
func CommandInto(ctx context.Context, root *cobra.Command, out, errs *Lines, args ...string) error {
	root.SetOut(out)
	root.SetErr(errs)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// AdminRig is a served socket with a real device manager, and a host with pipes for devices.
type AdminRig struct {
	t       *testing.T
	Dir     string
	Socket  string
	Manager *devices.Manager
	// Stop ends the server.
	Stop func()
}

// NewAdminRig serves a socket that tells this status.
func NewAdminRig(t *testing.T, status protocol.Status) *AdminRig {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &AdminRig{t: t, Dir: dir, Socket: filepath.Join(dir, protocol.SocketName)}
	if err := os.Mkdir(filepath.Join(dir, "cdi"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"w0", "w1", "w2", "gpu0"} {
		if err := unix.Mkfifo(r.Path(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.Spec("widget.json", "example.com/widget", "w0", "w1", "w2")
	r.Spec("gpus.yaml", "vendor.example/gpu", "GPU-5c6e2c1a-1f6b-44a0-8f1d-0a7f3e21b9c4", "all")
	db, _, err := state.Open(state.Config{Path: filepath.Join(dir, "agent.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	log := slog.New(slog.DiscardHandler)
	if r.Manager, err = devices.New(devices.Config{DB: db, CDI: cdi.Config{Dirs: []string{filepath.Join(dir, "cdi")}}, Boot: "one", Log: log}); err != nil {
		t.Fatal(err)
	}
	if err := r.Manager.Reconcile(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	Background(t, "devices", r.Manager.Run)
	s, err := admin.New(admin.Config{Socket: r.Socket, Devices: r.Manager, Log: log, Status: func(context.Context) protocol.Status { return status }})
	if err != nil {
		t.Fatal(err)
	}
	r.Stop = Background(t, "admin", s.Run)
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("no socket")
	}
	return r
}

// Background runs f until stop is called, or the test ends.
func Background(t *testing.T, name string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Path is that of a file in the rig's directory.
func (r *AdminRig) Path(name string) string { return filepath.Join(r.Dir, name) }

// Spec defines devices; their node is the pipe of their name, and that of GPUs gpu0.
func (r *AdminRig) Spec(file, kind string, names ...string) {
	r.t.Helper()
	var all []string
	for _, n := range names {
		node := r.Path(n)
		if strings.HasPrefix(n, "GPU-") || n == "all" {
			node = r.Path("gpu0")
		}
		all = append(all, fmt.Sprintf(`{"name": %q, "containerEdits": {"deviceNodes": [{"path": "/dev/%s", "hostPath": %q}], "env": ["N=%s"]}}`, n, n, node, n))
	}
	text := fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": %q, "devices": [%s]}`, kind, strings.Join(all, ", "))
	path := filepath.Join(r.Dir, "cdi", file)
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		r.t.Fatal(err)
	}
}

// Admit grants a pod its devices, and returns when they are on record: they are told of from then on.
func (r *AdminRig) Admit(pod string, containers ...devices.ContainerRequest) {
	r.t.Helper()
	v, err := r.Manager.Admit(r.t.Context(), devices.PodRequest{UID: "uid-" + pod, Namespace: "default", Name: pod, Created: time.Unix(1, 0), Containers: containers})
	if err != nil || v.Phase != devices.Admitted {
		r.t.Fatalf("%+v, %v", v, err)
	}
	for _, c := range containers {
		if _, err := r.Manager.Grant(r.t.Context(), source.Container{PodUID: "uid-" + pod, PodNamespace: "default", PodName: pod, Name: c.Name}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Asks is a container that requests devices.
func Asks(container string, role alloc.Role, resource string, n int64) devices.ContainerRequest {
	return devices.ContainerRequest{Name: container, Role: role, Resources: map[string]int64{resource: n}}
}

// Neutral takes out what differs from run to run.
func (r *AdminRig) Neutral(s string) string { return strings.ReplaceAll(s, r.Dir, "DIR") }
