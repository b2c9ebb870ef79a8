package cdi

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/answer"
)

// A device is the host nodes that are its own, by their real paths.
func TestIdentityIsTheDevicesOwnNodes(t *testing.T) {
	root := t.TempDir()
	dev := filepath.Join(root, "dev")
	write(t, filepath.Join(dev, "gpu0"), "")
	must(t, os.MkdirAll(filepath.Join(dev, "by-path"), 0o755))
	must(t, os.Symlink("../gpu0", filepath.Join(dev, "by-path/pci-1")))
	must(t, os.Symlink("../gpu9", filepath.Join(dev, "by-path/pci-9"))) // leads nowhere: the hardware is away
	must(t, os.Symlink("loop", filepath.Join(dev, "loop")))
	must(t, os.Symlink("dev", filepath.Join(root, "alias")))
	node := func(paths ...string) string {
		var nodes []string
		for _, p := range paths {
			nodes = append(nodes, fmt.Sprintf(`{"path": "/dev/x%d", "hostPath": %q}`, len(nodes), filepath.Join(root, p)))
		}
		return `{"deviceNodes": [` + strings.Join(nodes, ", ") + `]}`
	}
	write(t, filepath.Join(root, "cdi/x.json"), `{"cdiVersion": "0.5.0", "kind": "v.com/gpu", "containerEdits": `+node("dev/all-need-it")+`, "devices": [
		{"name": "plain", "containerEdits": `+node("dev/gpu1", "dev/gpu0")+`},
		{"name": "twice", "containerEdits": `+node("dev/gpu0", "dev/by-path/pci-1", "alias/gpu0", "dev/../dev/gpu0")+`},
		{"name": "away", "containerEdits": `+node("dev/by-path/pci-9")+`},
		{"name": "nowhere", "containerEdits": `+node("alias/no/such/node")+`},
		{"name": "loop", "containerEdits": `+node("dev/loop")+`},
		{"name": "sibling", "containerEdits": `+node("dev/ctl", "dev/ctl-7", "dev/gpu2")+`},
		{"name": "control", "containerEdits": `+node("dev/ctl")+`},
		{"name": "no-host-path", "containerEdits": {"deviceNodes": [{"path": "/dev/no-such-node"}]}},
		{"name": "seat", "containerEdits": {"env": ["A=b"]}}]}`)
	s := New(Config{Dirs: []string{filepath.Join(root, "cdi")}, SharedNodes: []string{filepath.Join(dev, "ctl"), filepath.Join(dev, "ctl-[0-9]")}, Log: slog.New(slog.DiscardHandler)})
	if p := s.Snapshot().Problems; len(p) > 0 {
		t.Fatal(p)
	}
	want := map[string]string{
		"plain": "dev/gpu0 dev/gpu1", "twice": "dev/gpu0", "away": "dev/gpu9", "nowhere": "dev/no/such/node", "loop": "dev/loop",
		"sibling": "dev/gpu2", "control": "", "no-host-path": "/dev/no-such-node", "seat": "",
	}
	real, err := filepath.EvalSymlinks(root)
	must(t, err)
	for name, nodes := range want {
		d, ok := s.Snapshot().Find("v.com/gpu", name)
		if !ok {
			t.Errorf("there is no device %q", name)
			continue
		}
		if got := strings.ReplaceAll(strings.Join(d.Nodes, " "), real+"/", ""); got != nodes {
			t.Errorf("device %q has the nodes %q, want %q", name, got, nodes)
		}
	}
}

func TestIdentityOfRealSpecs(t *testing.T) {
	dir := t.TempDir()
	edits := func(paths ...string) string {
		var nodes []string
		for _, p := range paths {
			nodes = append(nodes, fmt.Sprintf(`{"path": %q}`, p))
		}
		return `{"deviceNodes": [` + strings.Join(nodes, ", ") + `]}`
	}
	write(t, filepath.Join(dir, "nvidia.json"), `{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [
		{"name": "0", "containerEdits": `+edits("/dev/nvidia0", "/dev/nvidiactl")+`},
		{"name": "GPU-1ac8", "containerEdits": `+edits("/dev/nvidia0", "/dev/nvidiactl")+`},
		{"name": "1", "containerEdits": `+edits("/dev/nvidia1", "/dev/nvidiactl")+`},
		{"name": "0:0", "containerEdits": `+edits("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap12")+`},
		{"name": "all", "containerEdits": `+edits("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")+`}]}`)
	write(t, filepath.Join(dir, "amd.json"), `{"cdiVersion": "0.5.0", "kind": "amd.com/gpu", "devices": [
		{"name": "0", "containerEdits": `+edits("/dev/kfd", "/dev/dri/card991", "/dev/dri/renderD991")+`},
		{"name": "1", "containerEdits": `+edits("/dev/kfd", "/dev/dri/card992", "/dev/dri/renderD992")+`}]}`)
	s := New(Config{Dirs: []string{dir}, Log: slog.New(slog.DiscardHandler)})
	for _, tc := range []struct {
		resource, name string
		nodes, aliases []string
	}{
		{"nvidia.com/gpu", "GPU-1ac8", []string{"/dev/nvidia0"}, []string{"0"}},
		{"nvidia.com/gpu", "1", []string{"/dev/nvidia1"}, nil},
		{"nvidia.com/gpu", "0:0", []string{"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia0"}, nil},
		{"nvidia.com/gpu", "all", []string{"/dev/nvidia0", "/dev/nvidia1"}, nil},
		{"amd.com/gpu", "0", []string{"/dev/dri/card991", "/dev/dri/renderD991"}, nil},
		{"amd.com/gpu", "1", []string{"/dev/dri/card992", "/dev/dri/renderD992"}, nil},
	} {
		d, ok := s.Snapshot().Find(tc.resource, tc.name)
		if !ok || d.Name != tc.name || !slices.Equal(d.Nodes, tc.nodes) || !slices.Equal(d.Aliases, tc.aliases) {
			t.Errorf("%s=%s: got %+v, want the nodes %q and the aliases %q", tc.resource, tc.name, d, tc.nodes, tc.aliases)
		}
	}
}

// An answer's hardware is the same by whichever way it asks for its CDI devices.
func TestIdentifyReadsEveryWayIn(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.json"), `{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [
		{"name": "g0", "containerEdits": {"deviceNodes": [{"path": "/dev/g0"}, {"path": "/dev/nvidiactl"}]}},
		{"name": "g1", "containerEdits": {"deviceNodes": [{"path": "/dev/g1"}]}}]}`)
	write(t, filepath.Join(dir, "own.json"), `{"cdiVersion": "0.5.0", "kind": "k8s.device-plugin.nvidia.com/gpu", "devices": [
		{"name": "g2", "containerEdits": {"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/g2"}]}}]}`)
	s := New(Config{Dirs: []string{dir}, SharedNodes: DefaultSharedNodes, Log: slog.New(slog.DiscardHandler)})
	annotated := func(key, list string) answer.Answer { return answer.Answer{Annotations: map[string]string{key: list}} }
	for name, c := range map[string]struct {
		answer answer.Answer
		want   []string
	}{
		"field":                      {answer.Answer{CDIDevices: []string{"nvidia.com/gpu=g0"}}, []string{"/dev/g0"}},
		"node":                       {answer.Answer{Nodes: []answer.Node{{HostPath: "/dev/g0"}, {HostPath: "/dev/nvidiactl"}}}, []string{"/dev/g0"}},
		"annotation":                 {annotated("cdi.k8s.io/x", "nvidia.com/gpu=g0"), []string{"/dev/g0"}},
		"annotation of two":          {annotated("cdi.k8s.io/x", "nvidia.com/gpu=g1, nvidia.com/gpu=g0"), []string{"/dev/g0", "/dev/g1"}},
		"kind that is no resource":   {annotated("cdi.k8s.io/nvidia-device-plugin_uuid", "k8s.device-plugin.nvidia.com/gpu=g2"), []string{"/dev/g2"}},
		"other annotation":           {annotated("example.com/x", "nvidia.com/gpu=g0"), nil},
		"annotation that names none": {annotated("cdi.k8s.io/x", "nvidia.com/gpu=g7,,nothing"), nil},
		"all ways": {answer.Answer{CDIDevices: []string{"nvidia.com/gpu=g0"}, Nodes: []answer.Node{{HostPath: "/dev/g1"}},
			Annotations: map[string]string{"cdi.k8s.io/x": "nvidia.com/gpu=g0", "cdi.k8s.io/y": "k8s.device-plugin.nvidia.com/gpu=g2"}}, []string{"/dev/g0", "/dev/g1", "/dev/g2"}},
	} {
		if got := s.Identify(c.answer); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// benchmarkSpec has n devices with two names and two nodes each.
func benchmarkSpec(n int) string {
	var devices []string
	for i := range n {
		for _, name := range []string{fmt.Sprint(i), fmt.Sprintf("GPU-%08d", i)} {
			devices = append(devices, fmt.Sprintf(`{"name": %q, "containerEdits": {"deviceNodes": [{"path": "/dev/bench-gpu%d"}, {"path": "/dev/dri/bench-card%d"}]}}`, name, i, i))
		}
	}
	return `{"cdiVersion": "0.5.0", "kind": "v.com/gpu", "devices": [` + strings.Join(devices, ",\n") + `]}`
}

func BenchmarkLoad2000Devices(b *testing.B) {
	dir := b.TempDir()
	write(b, filepath.Join(dir, "x.json"), benchmarkSpec(2000))
	for b.Loop() {
		if c := load(new(cdispec.Reader), []string{dir}, advertiser{}); len(c.snapshot.Devices) != 2000 {
			b.Fatalf("%d devices; problems: %q", len(c.snapshot.Devices), c.snapshot.Problems)
		}
	}
}
