package devices

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/inventory"
)

// The whole of it with real folders, a real ledger and a real device node.
func TestCDIDevicesEndToEnd(t *testing.T) {
	root := t.TempDir()
	etc, run := filepath.Join(root, "etc"), filepath.Join(root, "run")
	m, err := New(Config{DB: open(t, filepath.Join(root, "agent.db")), CDI: cdi.Config{Dirs: []string{etc, run}}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reconcile(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ticks, stop := m.Subscribe()
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	notReady(t, m, request("a", "c", 1), "no device of this resource is defined (looked in "+etc+", "+run+")")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := `{"cdiVersion": "0.5.0", "kind": "example.com/widget", "devices": [
		{"name": "w0", "containerEdits": {"deviceNodes": [{"path": "/dev/widget", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}]}},
		{"name": "w1", "containerEdits": {"deviceNodes": [{"path": "/dev/widget", "hostPath": "` + root + `/node"}]}}]}`
	if err := os.WriteFile(filepath.Join(etc, "widget.json"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(time.Minute)
	for m.Resources()[widget] != (inventory.Quantity{Capacity: 1, Allocatable: 1}) { // the other has no node
		select {
		case <-ticks:
		case <-timeout:
			t.Fatalf("resources are %v; problems: %v", m.Resources(), m.Problems())
		}
	}
	grant(t, m, request("a", "c", 1), "w0")
	notReady(t, m, request("b", "c", 1), `; device "w1" of `+filepath.Join(etc, "widget.json")+": "+root+"/node does not exist")
}

func TestNewNeedsItsConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no error")
	}
}
