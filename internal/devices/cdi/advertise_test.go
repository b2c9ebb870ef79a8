package cdi

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhichKindsAreAdvertised(t *testing.T) {
	kinds := map[string]string{ // by the file that has it
		"nvidia.json": "nvidia.com/gpu", "intel.json": "intel.com/gpu", "own.json": "v.com/w", "k8s-like.json": "k8svendor.com/w",
		"plugin.json": "k8s.device-plugin.nvidia.com/gpu", "claim.json": "k8s.gpu.nvidia.com/claim", "dra.json": "k8s.gpu.example.com/gpu",
		"test.json": "cdi.k8s.io/test", "management.json": "management.nvidia.com/gpu", "jit.json": "runtime.nvidia.com/gpu",
		"sriov-dp-nvidia.com-net-pci-pool.json": "nvidia.com/net-pci",
	}
	all := []string{"cdi.k8s.io/test", "intel.com/gpu", "k8s.device-plugin.nvidia.com/gpu", "k8s.gpu.example.com/gpu", "k8s.gpu.nvidia.com/claim",
		"k8svendor.com/w", "management.nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/net-pci", "runtime.nvidia.com/gpu", "v.com/w"}
	dir := t.TempDir()
	for file, kind := range kinds {
		write(t, filepath.Join(dir, file), spec(kind, "d0"))
	}
	for _, tc := range []struct {
		allow, deny, want []string
	}{
		{want: []string{"intel.com/gpu", "k8svendor.com/w", "nvidia.com/gpu", "v.com/w"}},
		{deny: []string{"intel.com/*", "*/w"}, want: []string{"nvidia.com/gpu"}},
		{deny: []string{"*/*"}, allow: []string{"v.com/w"}, want: []string{"v.com/w"}},
		{deny: []string{"*/*"}},
		{deny: []string{"*"}, want: []string{"intel.com/gpu", "k8svendor.com/w", "nvidia.com/gpu", "v.com/w"}}, // no kind is without a slash
		{allow: []string{"k8s.gpu.example.com/gpu", "nvidia.com/net-pci"},
			want: []string{"intel.com/gpu", "k8s.gpu.example.com/gpu", "k8svendor.com/w", "nvidia.com/gpu", "nvidia.com/net-pci", "v.com/w"}},
		{allow: []string{"*/*"}, deny: []string{"v.com/w"}, want: all},
	} {
		t.Run(fmt.Sprintf("allow %q deny %q", tc.allow, tc.deny), func(t *testing.T) {
			s := New(Config{Dirs: []string{dir}, Allow: tc.allow, Deny: tc.deny, Log: slog.New(slog.DiscardHandler)})
			if got := s.Snapshot().Resources; !slices.Equal(got, tc.want) {
				t.Errorf("resources %q, want %q", got, tc.want)
			}
			if len(s.Snapshot().Devices) != len(tc.want) || len(s.Snapshot().Problems) != 0 {
				t.Errorf("devices %q, problems %q", names(s.Snapshot().Devices), s.Snapshot().Problems)
			}
			for _, kind := range all { // what is not counted is there by name
				if err := s.Check(kind, "d0", false); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
}

// A kind in a plugin's file and in another one: only the other one's devices count.
func TestAPluginsFileDoesNotCountWhoeverElseHasItsKind(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sriov-dp-a.json"), spec("v.com/net-pci", "0000"))
	write(t, filepath.Join(dir, "mine.json"), spec("v.com/net-pci", "mine"))
	s := New(Config{Dirs: []string{dir}, Log: slog.New(slog.DiscardHandler)})
	if got := names(s.Snapshot().Devices); !slices.Equal(got, []string{"v.com/net-pci=mine"}) {
		t.Errorf("devices %q", got)
	}
}
