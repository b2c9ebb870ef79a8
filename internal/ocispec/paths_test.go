package ocispec

import (
	"slices"
	"testing"
)

// TestMaskedPaths: what the client says holds; the usual paths are for those who say nothing, where the host is set to it.
func TestMaskedPaths(t *testing.T) {
	usual := []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware", "/proc/sys", "/proc/sysrq-trigger", "/proc/irq"}
	for name, c := range map[string]struct {
		set, privileged  bool
		masked, readonly []string
		wantUsual        bool
	}{
		"none":                      {},
		"none, and set":             {set: true, wantUsual: true},
		"none, privileged, and set": {set: true, privileged: true},
		"empty lists, and set":      {set: true, masked: []string{}, readonly: []string{}, wantUsual: true},
		"masked":                    {masked: []string{"/proc/keys"}},
		"masked, and set":           {set: true, masked: []string{"/proc/keys"}},
		"read-only, and set":        {set: true, readonly: []string{"/proc/sys"}},
	} {
		in := testInput()
		in.Host.DefaultMaskedPaths = c.set
		sc := security(&in)
		sc.MaskedPaths, sc.ReadonlyPaths = c.masked, c.readonly
		sc.Privileged, in.Sandbox.Linux.SecurityContext.Privileged = c.privileged, c.privileged
		spec, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		masked, readonly := spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths
		if !c.wantUsual {
			if !slices.Equal(masked, c.masked) || !slices.Equal(readonly, c.readonly) {
				t.Errorf("%s: %q and %q", name, masked, readonly)
			}
			continue
		}
		for _, p := range usual {
			if slices.Contains(masked, p) == slices.Contains(readonly, p) {
				t.Errorf("%s: %s is in both lists, or in neither: %q, %q", name, p, masked, readonly)
			}
		}
	}
}
