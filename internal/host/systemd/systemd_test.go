package systemd

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"

	"monopod.dev/monopod/internal/host/cgroup"
)

// TestCheck: either systemd answers, or it is said what is missing and what to do.
func TestCheck(t *testing.T) {
	version, err := Check(t.Context())
	_, missing := os.Stat("/run/systemd/system")
	switch {
	case err == nil && (missing != nil || !cgroups.IsCgroup2UnifiedMode() || version == ""):
		t.Errorf("systemd %q is said to be there", version)
	case err != nil && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "--cgroup-driver")):
		t.Error(err)
	case missing != nil && !strings.Contains(err.Error(), "first process"):
		t.Error(err)
	}
}

func TestScope(t *testing.T) {
	s := NewScope("a-b.slice", "0f")
	if got, ok, err := ParseScope(s.String()); !ok || err != nil || got != s || s.String() != "a-b.slice:monopod:0f" {
		t.Errorf("%q: %+v, %v, %v", s, got, ok, err)
	}
	if s.Unit() != "monopod-0f.scope" || s.Path() != "/a.slice/a-b.slice/monopod-0f.scope" || s.Leaf() != s.Path()+"/container" ||
		s.LeafDir() != "/sys/fs/cgroup/a.slice/a-b.slice/monopod-0f.scope/container" || !IsScope(s.Leaf()) {
		t.Errorf("%q, %q, %q, %q", s.Unit(), s.Path(), s.Leaf(), s.LeafDir())
	}
	for _, path := range []string{"/a/b", "/a.slice/x.scope/container"} {
		if _, ok, err := ParseScope(path); ok || err != nil {
			t.Errorf("%q: %v, %v; want a path", path, ok, err)
		}
	}
	for _, bad := range []string{"", "a", "a:b", "a:b:c", "a.slice:b", "a.slice::c", "a.slice:b:", "a.slice:b:c:d", "a.slice:b:c/d", "a.slice:../b:c", "-.slice:b:c",
		"/a.slice:b", ".slice:b:c", "a--b.slice:b:c", "a.slice:b:c.slice", "a/b.slice:b:c", "a.slice:b:c\n"} {
		if s, ok, err := ParseScope(bad); ok || err == nil && !strings.HasPrefix(bad, "/") || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %+v, %v, %v", bad, s, ok, err)
		}
	}
	for _, other := range []string{"/a/container", "/monopod/pods/container", "/a.slice/x.scope", "/"} {
		if err := StopScopeOf(other); IsScope(other) || !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", other, err)
		}
	}
}

func TestParent(t *testing.T) {
	for slice, want := range map[string]string{"a.slice": "-.slice", "a-b.slice": "a.slice", "a-b-c.d.slice": "a-b.slice"} {
		if got := parent(slice); got != want {
			t.Errorf("%q: %q, want %q", slice, got, want)
		}
	}
}

func TestResources(t *testing.T) {
	got := resources(cgroup.Resources{CPUShares: new(uint64(1024)), CPUQuota: new(int64(-1)), CPUPeriod: new(uint64(50000)), MemoryLimit: new(int64(10)),
		MemorySwap: new(int64(20)), PidsLimit: new(int64(5)), CPUs: "0", Mems: "1", Unified: map[string]string{"memory.high": "1"}, Hugepages: map[string]uint64{"2MB": 1}})
	want := &cgroups.Resources{SkipDevices: true, CpuWeight: 100, CpuQuota: -1, CpuPeriod: 50000, Memory: 10, MemorySwap: 20, PidsLimit: new(int64(5)),
		CpusetCpus: "0", CpusetMems: "1", Unified: map[string]string{"memory.high": "1"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
