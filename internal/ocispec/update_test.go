package ocispec

import (
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMergeResources(t *testing.T) {
	type res = cri.LinuxContainerResources
	old := &res{CpuPeriod: 1, CpuQuota: 2, CpuShares: 3, MemoryLimitInBytes: 4, OomScoreAdj: 5, CpusetCpus: "0", CpusetMems: "0", MemorySwapLimitInBytes: 6,
		HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 7}}, Unified: map[string]string{"memory.high": "8"}}
	for name, c := range map[string]struct{ old, update, want *res }{
		"nothing from nothing": {nil, nil, &res{}},
		"nothing changes":      {old, &res{}, old},
		"the first":            {nil, old, old},
		"everything": {old,
			&res{CpuPeriod: 11, CpuQuota: -1, CpuShares: 13, MemoryLimitInBytes: -1, OomScoreAdj: -15, CpusetCpus: "1", CpusetMems: "0-1", MemorySwapLimitInBytes: -1,
				HugepageLimits: []*cri.HugepageLimit{{PageSize: "1GB", Limit: 1}, {PageSize: "2MB"}}, Unified: map[string]string{"memory.high": "max", "pids.max": "9"}},
			&res{CpuPeriod: 11, CpuQuota: -1, CpuShares: 13, MemoryLimitInBytes: -1, OomScoreAdj: -15, CpusetCpus: "1", CpusetMems: "0-1", MemorySwapLimitInBytes: -1,
				HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB"}, {PageSize: "1GB", Limit: 1}}, Unified: map[string]string{"memory.high": "max", "pids.max": "9"}}},
		"one field": {old, &res{CpuShares: 4}, func() *res { r := proto.Clone(old).(*res); r.CpuShares = 4; return r }()},
	} {
		before, change := proto.Clone(c.old), proto.Clone(c.update)
		got := MergeResources(c.old, c.update)
		if !proto.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if !proto.Equal(before, c.old) || !proto.Equal(change, c.update) {
			t.Errorf("%s: the input was changed", name)
		}
	}
}

func TestEffectiveResources(t *testing.T) {
	type res = cri.LinuxContainerResources
	free, bound := Host{SwapLimit: true, HugepageSizes: []string{"2MB"}}, Host{MinOOMScoreAdj: new(-10)}
	for name, c := range map[string]struct {
		in   *res
		host Host
		want *res
	}{
		"none":                       {nil, free, nil},
		"as asked for":               {&res{CpuShares: 5, OomScoreAdj: -998}, free, &res{CpuShares: 5, OomScoreAdj: -998}},
		"score out of reach":         {&res{OomScoreAdj: -998}, bound, &res{OomScoreAdj: -10}},
		"swap follows memory":        {&res{MemoryLimitInBytes: 9}, free, &res{MemoryLimitInBytes: 9, MemorySwapLimitInBytes: 9}},
		"swap is not counted":        {&res{MemoryLimitInBytes: 9, MemorySwapLimitInBytes: 9}, bound, &res{MemoryLimitInBytes: 9}},
		"sizes that are not limited": {&res{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB"}, {PageSize: "1GB"}}}, free, &res{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB"}}}},
	} {
		if got := EffectiveResources(c.in, c.host); !proto.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestUnifiedKeys(t *testing.T) {
	check := func(key string, v2 bool) error {
		_, err := Resources(&cri.LinuxContainerResources{Unified: map[string]string{key: "1"}}, Host{CgroupV2: v2})
		return err
	}
	for _, key := range []string{"memory.high", "memory.oom.group", "io.weight", "pids.max", "hugetlb.2MB.max"} {
		if err := check(key, true); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if err := check(key, false); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s on v1: %v, want FailedPrecondition", key, err)
		}
	}
	for _, key := range []string{"", "memory", "memory.", ".max", "../memory.high", "a/b.c", "memory.high\n", "cgroup.procs", "cgroup.kill", "cgroup.freeze",
		"cgroup.subtree_control", "cgroup.max.depth"} {
		if err := check(key, true); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v, want InvalidArgument", key, err)
		}
	}
}
