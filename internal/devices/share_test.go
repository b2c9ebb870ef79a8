package devices

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/devices/cdi"
)

// sharedDevices is a source of CDI devices, of which each has as many shares.
func sharedDevices(t *testing.T, n int, names ...string) *cdi.Source {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		spec := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": %q, "devices": [{"name": %q, "containerEdits": {"deviceNodes": [{"path": "/dev/%s", "hostPath": "/dev/zero"}]}}]}`, widget, name, name)
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cdi.New(cdi.Config{Dirs: []string{dir}, SharedNodes: []string{}, Sharing: []cdi.Share{{Devices: widget, Count: n}}, Log: slog.New(slog.DiscardHandler)})
}

// A device that is shared is given so many times, and no further; what is granted survives the process, and another number of shares.
func TestASharedDeviceIsGivenToSeveral(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := open(t, path)
	m := settledManager(t, db, sharedDevices(t, 3, "gpu"))
	if q := m.Resources()[widget]; q.Capacity != 3 || q.Allocatable != 3 {
		t.Errorf("%+v", q)
	}
	first, second, third, fourth := request("a", "c", 1), request("b", "c", 1), request("c", "c", 1), request("d", "c", 1)
	for _, req := range []PodRequest{first, second, third} {
		grant(t, m, req, "gpu")
	}
	notReady(t, m, fourth, "1 wanted, 0 free (of 3, 3 in use)")
	notReady(t, m, request("e", "c", 2), "more than the node has")
	if err := m.Release(t.Context(), second.UID); err != nil {
		t.Fatal(err)
	}
	grant(t, m, fourth, "gpu")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	// Shared by two: those that have it keep it, also when they start again, and nobody else gets it before one has left.
	m = settledManager(t, open(t, path), sharedDevices(t, 2, "gpu"))
	for _, req := range []PodRequest{first, third, fourth} {
		grant(t, m, req, "gpu")
	}
	for _, g := range m.Grants() {
		if d := g.Devices[0]; d.ShareOf != "gpu" || d.Health != Healthy {
			t.Errorf("%+v", d)
		}
	}
	notReady(t, m, second, "0 free (of 2, 2 in use)")
}

// Who was granted a device alone keeps it alone, when it is shared later.
func TestAGrantAloneStaysAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := open(t, path)
	grant(t, settledManager(t, db, sharedDevices(t, 1, "gpu")), request("a", "c", 1), "gpu")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	m := settledManager(t, open(t, path), sharedDevices(t, 4, "gpu"))
	notReady(t, m, request("b", "c", 1), "1 wanted, 0 free (of 4, 4 in use)")
	if err := m.Release(t.Context(), request("a", "c", 1).UID); err != nil {
		t.Fatal(err)
	}
	grant(t, m, request("b", "c", 1), "gpu")
	grant(t, m, request("c", "c", 1), "gpu")
}
