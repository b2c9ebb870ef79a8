package cdi

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

const sharedSpec = `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "annotations": {"monopod.dev/shares": "2"},
"devices": [
	{"name": "g0", "containerEdits": {"deviceNodes": [{"path": "/dev/zero", "type": "c", "major": 1, "minor": 5}]}},
	{"name": "g1", "annotations": {"monopod.dev/shares": "3"}, "containerEdits": {"deviceNodes": [{"path": "/dev/none", "hostPath": "/dev/there-is-no-such-node"}]}},
	{"name": "g2", "annotations": {"monopod.dev/shares": "1"}, "containerEdits": {"env": ["A=1"]}},
	{"name": "all", "containerEdits": {"env": ["A=2"]}}]}`

func TestSharing(t *testing.T) {
	for name, tc := range map[string]struct {
		spec    string
		sharing []Share
		want    string
		problem string
	}{
		"annotations": {spec: sharedSpec, want: "all g0 g0#2 g1 g1#2 g1#3 g2"},
		"the configuration goes first, and of it the first": {spec: sharedSpec, sharing: []Share{{"example.com/gpu=g1", 1}, {"example.com/*", 2}, {"*/*", 9}},
			want: "all g0 g0#2 g1 g2 g2#2"},
		"a device by its name": {spec: sharedSpec, sharing: []Share{{"example.com/gpu=g2", 4}}, want: "all g0 g0#2 g1 g1#2 g1#3 g2 g2#2 g2#3 g2#4"},
		"of another kind":      {spec: sharedSpec, sharing: []Share{{"example.com/g*u=none", 4}, {"gpu", 3}}, want: "all g0 g0#2 g1 g1#2 g1#3 g2"},
		"no number": {spec: `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [{"name": "g0", "annotations": {"monopod.dev/shares": "many"}, "containerEdits": {"env": ["A=1"]}}]}`,
			want: "g0", problem: `device "g0" is not shared: its annotation monopod.dev/shares is "many": use a number from 1 to 1024`},
		"too many": {spec: `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [{"name": "g0", "annotations": {"monopod.dev/shares": "1025"}, "containerEdits": {"env": ["A=1"]}}]}`,
			want: "g0", problem: "use a number from 1 to 1024"},
		"a network interface": {spec: `{"cdiVersion": "1.1.0", "kind": "example.com/nic", "devices": [{"name": "n0", "containerEdits": {"netDevices": [{"hostInterfaceName": "x0", "name": "eth1"}]}}]}`,
			sharing: []Share{{"example.com/nic", 2}}, want: "n0",
			problem: `device "n0" is not shared, though the configuration says so: it has a network interface, which is in one container at a time`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "gpu.json"), []byte(tc.spec), 0o600))
			s := New(Config{Dirs: []string{dir}, Sharing: tc.sharing, Log: slog.New(slog.DiscardHandler)})
			snap := s.Snapshot()
			var all []string
			for _, d := range snap.Devices {
				all = append(all, d.Name)
			}
			if got := strings.Join(all, " "); got != tc.want {
				t.Errorf("devices are %s, want %s", got, tc.want)
			}
			if got := fmt.Sprint(snap.Problems); !strings.Contains(got, tc.problem) || tc.problem == "" && len(snap.Problems) > 0 {
				t.Errorf("problems are %s, want %q", got, tc.problem)
			}
		})
	}
}

// A share is its device in all but its name.
func TestSharesAreTheirDevice(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "gpu.json"), []byte(sharedSpec), 0o600))
	s := New(Config{Dirs: []string{dir}, SharedNodes: []string{}, Log: slog.New(slog.DiscardHandler)})
	find := func(name string) inventory.Device {
		d, ok := s.Snapshot().Find("example.com/gpu", name)
		if !ok {
			t.Fatalf("no %s among %v", name, s.Snapshot().Devices)
		}
		return d
	}
	if d := find("g0#2"); d.ShareOf != "g0" || fmt.Sprint(d.Nodes) != "[/dev/zero]" || d.Unhealthy != "" || d.Origin != find("g0").Origin || find("g0").ShareOf != "g0" {
		t.Errorf("%+v", d)
	}
	if d := find("g1#3"); d.ShareOf != "g1" || !d.Absent || d.Unhealthy == "" {
		t.Errorf("%+v", d)
	}
	if d := find("g2"); d.ShareOf != "" {
		t.Errorf("%+v", d)
	}
	must(t, s.Check("example.com/gpu", "g0#2", false))
	if err := s.Check("example.com/gpu", "g1#2", false); err == nil || !strings.Contains(err.Error(), "/dev/there-is-no-such-node") {
		t.Error(err)
	}
	a, err := s.Prepare(t.Context(), source.Container{}, "example.com/gpu", []string{"g0#2", "g2", "g0"})
	if err != nil || fmt.Sprint(a.CDIDevices) != "[example.com/gpu=g0 example.com/gpu=g2]" {
		t.Errorf("%v, %v", a.CDIDevices, err)
	}
}
