package plugin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/inventory"
)

const resource = "example.com/widget"

// deadline ends a test that has failed.
const deadline = 60 * time.Second

// node is a Source that runs, in folders of its own.
type node struct {
	*Source
	t      *testing.T
	stop   func() // and wait for the end
	mu     sync.Mutex
	ticks  int
	ticked chan struct{} // closed at the next change
}

// folder is a temporary folder with a path that has room for a socket's name. When the test has ended nothing of it must run on.
func folder(t *testing.T) string {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, change ...func(*Source)) *node {
	t.Helper()
	return startIn(t, folder(t), change...)
}

// startIn starts a source, and stops it with the test.
func startIn(t *testing.T, dir string, change ...func(*Source)) *node {
	t.Helper()
	s, err := New(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(logTo{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.pace.retryMax = 200 * time.Millisecond
	s.pace.silence = 300 * time.Millisecond
	for _, f := range change {
		f(s)
	}
	n := &node{Source: s, t: t, ticked: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, n.tick) }()
	var once sync.Once
	n.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(n.stop)
	n.awaitSocket()
	return n
}

type logTo struct{ t *testing.T }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (n *node) tick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ticks++
	close(n.ticked)
	n.ticked = make(chan struct{})
}

func (n *node) count() (int, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ticks, n.ticked
}

// await waits for a snapshot.
func (n *node) await(what string, is func(*inventory.Snapshot) bool) *inventory.Snapshot {
	n.t.Helper()
	late := time.After(deadline)
	for {
		_, ticked := n.count()
		if snap := n.Snapshot(); is(snap) {
			return snap
		}
		select {
		case <-ticked:
		case <-late:
			n.t.Fatalf("%s: never; the last snapshot: %+v", what, *n.Snapshot())
		}
	}
}

// awaitHealthy waits until a resource has so many healthy devices.
func (n *node) awaitHealthy(name string, want int) *inventory.Snapshot {
	n.t.Helper()
	return n.await("healthy devices", func(s *inventory.Snapshot) bool { return healthy(s, name) == want })
}

func healthy(s *inventory.Snapshot, name string) (count int) {
	for _, d := range s.Of(name) {
		if d.Unhealthy == "" {
			count++
		}
	}
	return count
}

func (n *node) awaitProblem(text string) *inventory.Snapshot {
	n.t.Helper()
	return n.await("problem with "+text, func(s *inventory.Snapshot) bool {
		for _, p := range s.Problems {
			if strings.Contains(p.String(), text) {
				return true
			}
		}
		return false
	})
}

func (n *node) socket() string { return filepath.Join(n.cfg.Dir, kubeletSocket) }

// awaitSocket waits until kubelet.sock is served.
func (n *node) awaitSocket() {
	n.t.Helper()
	eventually(n.t, "kubelet.sock", func() bool {
		_, err := os.Lstat(n.socket())
		return err == nil
	})
}

// eventually asks what tells nobody.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: never", what)
		}
	}
}

// plug starts an emulated plugin in a node's folder; what it returns kills it.
func (n *node) plug(cfg emulator.Config) (*emulator.Plugin, func()) {
	n.t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = n.cfg.Dir
	}
	return plug(n.t, cfg)
}

func plug(t *testing.T, cfg emulator.Config) (*emulator.Plugin, func()) {
	t.Helper()
	if cfg.Resource == "" {
		cfg.Resource = resource
	}
	p := emulator.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	kill := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("plugin: %v", err)
			}
		})
	}
	t.Cleanup(kill)
	return p, kill
}

// register sends a Register.
func (n *node) register(req *v1beta1.RegisterRequest) error {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	conn, err := connect(ctx, n.socket())
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, req)
	return err
}
