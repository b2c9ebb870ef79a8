package sandbox

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/records"
)

func TestLimits(t *testing.T) {
	type res = cri.LinuxContainerResources
	for name, c := range map[string]struct {
		resources, overhead *res
		want                cgroup.Resources
	}{
		"none":            {nil, nil, cgroup.Resources{}},
		"overhead only":   {nil, &res{MemoryLimitInBytes: 5, CpuQuota: 5, CpuShares: 5}, cgroup.Resources{}},
		"sum":             {&res{MemoryLimitInBytes: 10, CpuShares: 100}, &res{MemoryLimitInBytes: 5, CpuShares: 7}, cgroup.Resources{MemoryLimit: new(int64(15)), CPUShares: new(uint64(107))}},
		"other period":    {&res{CpuQuota: 1000, CpuPeriod: 100000}, &res{CpuQuota: 500, CpuPeriod: 50000}, cgroup.Resources{CPUQuota: new(int64(2000)), CPUPeriod: new(uint64(100000))}},
		"without a limit": {&res{CpuQuota: -1, MemoryLimitInBytes: -1}, &res{CpuQuota: 500, MemoryLimitInBytes: 5}, cgroup.Resources{CPUQuota: new(int64(-1)), MemoryLimit: new(int64(-1))}},
		"swap":            {&res{MemoryLimitInBytes: 10, MemorySwapLimitInBytes: 20}, &res{MemoryLimitInBytes: 5}, cgroup.Resources{MemoryLimit: new(int64(15)), MemorySwap: new(int64(25))}},
		"hugepages": {&res{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 10}, {PageSize: "1GB"}}},
			&res{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 5}}}, cgroup.Resources{Hugepages: map[string]uint64{"2MB": 15}}},
		"cpuset and unified": {&res{CpusetCpus: "0", CpusetMems: "0", Unified: map[string]string{"memory.high": "1"}}, nil,
			cgroup.Resources{CPUs: "0", Mems: "0", Unified: map[string]string{"memory.high": "1"}}},
		"period only": {&res{CpuPeriod: 100000}, nil, cgroup.Resources{}},
	} {
		if got := limits(c.overhead, c.resources, ocispec.Host{SwapLimit: true, HugepageSizes: []string{"2MB"}}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestRecordSurvivesJSON: every field of a record is stored. A new field has to be set here.
func TestRecordSurvivesJSON(t *testing.T) {
	at := time.Unix(1, 2).UTC()
	in := Record{ID: "i", Stored: records.Proto[*cri.PodSandboxConfig]{Message: &cri.PodSandboxConfig{Hostname: "h"}}, Handler: "n", ByDefault: true, BootID: "b", CreatedAt: at,
		ReadyAt: at, StoppedAt: at, ReclaimedAt: at, Cgroup: "/c", OwnCgroup: true, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Slice: "kubepods.slice", LogDir: "/logs", OneTmpfs: true, SELinux: ocispec.SELinuxLabels{Process: "u:r:t:s0", Mount: "u:r:f:s0", Level: "s0"},
		Updated: &records.Proto[*cri.UpdatePodSandboxResourcesRequest]{Message: &cri.UpdatePodSandboxResourcesRequest{Overhead: &cri.LinuxContainerResources{CpuShares: 7}}}}
	for v, i := reflect.ValueOf(in), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the field %s is not set by this test", v.Type().Field(i).Name)
		}
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Record
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(out); err != nil || string(again) != string(raw) || out.Config().GetHostname() != "h" || out.Overhead().GetCpuShares() != 7 {
		t.Errorf("%s became %s, %v", raw, again, err)
	}
}

func TestResolvConf(t *testing.T) {
	got, err := resolvConf(&cri.DNSConfig{Servers: []string{"1.1.1.1", "::1"}, Searches: []string{"a", "b"}, Options: []string{"ndots:5"}})
	if want := "search a b\nnameserver 1.1.1.1\nnameserver ::1\noptions ndots:5\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := resolvConf(&cri.DNSConfig{}); err != nil || got != "" {
		t.Errorf("an empty configuration is not the host's: %q, %v", got, err)
	}
}
