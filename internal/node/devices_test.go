package node

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/state"
)

// The configuration's cdiSharedNodes belong to no device of its own, beside those that are known: whose devices have only such nodes in common do not
// wait for each other.
func TestSharedNodesAreConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  []string // what both kinds have
		shared []string // devices.cdiSharedNodes
		both   bool     // each gets its device
	}{
		"none are shared":           {nodes: []string{"/dev/acme-ctl", "/dev/acme-mem0"}},
		"one of two":                {nodes: []string{"/dev/acme-ctl", "/dev/acme-mem0"}, shared: []string{"/dev/acme-ctl"}},
		"both":                      {nodes: []string{"/dev/acme-ctl", "/dev/acme-mem0"}, shared: []string{"/dev/acme-ctl", "/dev/acme-mem[0-9]"}, both: true},
		"one known without setting": {nodes: []string{"/dev/null"}, both: true},
		"one known, beside another": {nodes: []string{"/dev/null"}, shared: []string{"/dev/acme-ctl"}, both: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, kind := range []string{"one", "two"} {
				edits := ""
				for i, n := range c.nodes {
					edits += fmt.Sprintf(`{"path": "/dev/node%d", "hostPath": %q, "type": "c", "major": 1, "minor": 3},`, i, n)
				}
				spec := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "acme.com/%s", "devices": [{"name": "0", "containerEdits": {"deviceNodes": [%s]}}]}`, kind, edits[:len(edits)-1])
				if err := os.WriteFile(filepath.Join(dir, kind+".json"), []byte(spec), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := Options{Log: slog.New(slog.DiscardHandler), Config: &v1alpha1.NodeConfiguration{Devices: v1alpha1.Devices{
				CDISpecDirs: []string{dir}, CDISharedNodes: c.shared, TopologyManagerPolicy: "none", TopologyManagerScope: "container"}}}
			cfg, err := devicesConfig(o)
			if err != nil {
				t.Fatal(err)
			}
			db, _, err := state.Open(state.Config{Path: filepath.Join(t.TempDir(), "agent.db")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			cfg.DB, cfg.Boot = db, "boot"
			m, err := devices.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Reconcile(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			for i, kind := range []string{"one", "two"} {
				v, err := m.Admit(t.Context(), devices.PodRequest{UID: kind, Namespace: "default", Name: kind,
					Containers: []devices.ContainerRequest{{Name: "c", Role: alloc.Main, Resources: map[string]int64{"acme.com/" + kind: 1}}}})
				want := devices.Admitted
				if i == 1 && !c.both {
					want = devices.Held
				}
				if err != nil || v.Phase != want {
					t.Errorf("pod %s: %+v, %v, want %s", kind, v, err, want)
				}
			}
		})
	}
}
