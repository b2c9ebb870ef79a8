package devicetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices/plugin"
)

// startPatience is how long the registration endpoint may take to be there.
const startPatience = 60 * time.Second

// Config shapes a node. Its zero value is usable.
type Config struct {
	// Grace is for how long the devices of a plugin that is gone stay known, unhealthy; 0: five minutes, as on nodes.
	Grace time.Duration
	// AllocateTimeout is how long an Allocate may take; 0: 30 s, as on nodes.
	AllocateTimeout time.Duration
	// Registry has the node look for plugins in a plugin watcher's folder, too: see RegistryDir.
	Registry bool
	// Quiet keeps what the node says of the plugin out of the test's log.
	Quiet bool
}

// Node is a node as a device plugin sees it. Its methods are safe for concurrent use, except that Restart and Stop are called from the test's
// goroutine.
type Node struct {
	t    testing.TB
	cfg  Config
	base string

	mu      sync.Mutex
	source  *plugin.Source // the one that runs, or has run last
	changed chan struct{}  // closed at the next change of the devices
	cancel  context.CancelFunc
	ended   chan error // of the source that runs; nil: none does
}

// Start starts a node, and stops it with the test, when all that it has made is removed. It fails the test when it cannot.
func Start(t testing.TB, cfg Config) *Node {
	t.Helper()
	base, err := shortFolder()
	if err != nil {
		t.Fatalf("devicetest: %v", err)
	}
	n := &Node{t: t, cfg: cfg, base: base, changed: make(chan struct{})}
	t.Cleanup(func() {
		n.Stop()
		if err := os.RemoveAll(base); err != nil {
			t.Errorf("devicetest: %v", err)
		}
	})
	if err := errors.Join(os.Mkdir(n.Dir(), 0o750), os.Mkdir(n.RegistryDir(), 0o750)); err != nil { // the kubelet's mode
		t.Fatalf("devicetest: %v", err)
	}
	n.run()
	return n
}

// shortFolder makes a temporary folder whose path leaves as much room for the name of a socket as a node's does. The test's own folder,
// t.TempDir, has the test's name in it, and a socket's path has 107 bytes at most.
func shortFolder() (string, error) {
	for _, in := range []string{os.TempDir(), "/tmp"} {
		if len(filepath.Join(in, "dt1234567890", "d")) > len(plugin.DefaultDir) {
			continue
		}
		return os.MkdirTemp(in, "dt")
	}
	return "", fmt.Errorf("the path of the temporary folder %s is too long for sockets: set TMPDIR to a shorter one", os.TempDir())
}

// Dir is the folder of kubelet.sock, where the plugin makes its own socket: /var/lib/kubelet/device-plugins on a node.
func (n *Node) Dir() string { return filepath.Join(n.base, "d") }

// Socket is the path of kubelet.sock.
func (n *Node) Socket() string { return filepath.Join(n.Dir(), "kubelet.sock") }

// RegistryDir is the plugin watcher's folder: /var/lib/kubelet/plugins_registry on a node. Without Config.Registry nobody looks into it.
func (n *Node) RegistryDir() string { return filepath.Join(n.base, "r") }

// run starts the node's code and waits for kubelet.sock.
func (n *Node) run() {
	n.t.Helper()
	cfg := plugin.Config{Dir: n.Dir(), Grace: n.cfg.Grace, AllocateTimeout: n.cfg.AllocateTimeout, Log: slog.New(slog.DiscardHandler)}
	if n.cfg.Registry {
		cfg.RegistryDir = n.RegistryDir()
	}
	if !n.cfg.Quiet {
		cfg.Log = slog.New(slog.NewTextHandler(logTo{n.t}, nil))
	}
	source, err := plugin.New(cfg)
	if err != nil {
		n.t.Fatalf("devicetest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.t.Context())) // Stop ends it: the test's context ends before the plugin may have
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx, n.tick) }()
	n.mu.Lock()
	n.source, n.cancel, n.ended = source, cancel, ended
	n.mu.Unlock()
	n.tick()
	for end := time.Now().Add(startPatience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(n.Socket()); err == nil {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("devicetest: %s is not there after %s: %s", n.Socket(), startPatience, strings.Join(n.Problems(), "; "))
		}
	}
}

// tick wakes who waits.
func (n *Node) tick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// now is what is known, and what is closed when that changes.
func (n *Node) now() (*plugin.Source, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.source, n.changed
}

// Stop stops the node: kubelet.sock is gone afterwards, and plugins' sockets stay. A node that is stopped knows its devices as they were last.
// It may be called again, and Restart starts the node anew.
func (n *Node) Stop() {
	n.t.Helper()
	n.mu.Lock()
	cancel, ended := n.cancel, n.ended
	n.ended = nil
	n.mu.Unlock()
	if ended == nil {
		return
	}
	cancel()
	if err := <-ended; err != nil {
		n.t.Errorf("devicetest: the node ended: %v", err)
	}
}

// Restart does what the start of a kubelet does: kubelet.sock and all plugins' sockets are removed, kubelet.sock is made anew. Nothing is known
// of the plugins then: they have to register again.
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	entries, err := os.ReadDir(n.Dir())
	if err != nil {
		n.t.Fatalf("devicetest: %v", err)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(n.Dir(), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.t.Fatalf("devicetest: %v", err)
		}
	}
	n.run()
}

// logTo writes lines to a test's log.
type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Log("node: " + strings.TrimSpace(string(p)))
	return len(p), nil
}
