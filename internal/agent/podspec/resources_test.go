package podspec

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func req(pairs ...string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: list(pairs...)}
}

func both(requests, limits v1.ResourceList) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: requests, Limits: limits}
}

// Which container goes first when the machine is out of memory.
func TestOOMScore(t *testing.T) {
	always, priority := v1.ContainerRestartPolicyAlways, int32(2_000_001_000)
	pod := func(change func(*v1.PodSpec), containers ...v1.ResourceRequirements) *v1.Pod {
		p := podOf(containers...)
		change(&p.Spec)
		return p
	}
	sidecar := func(r v1.ResourceRequirements) func(*v1.PodSpec) {
		return func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always, Resources: r}}
		}
	}
	for name, c := range map[string]struct {
		pod       *v1.Pod
		container string
		want      int64
	}{
		"a quarter of the memory":           {podOf(req("memory", "1Gi")), "a", 750},
		"cpu alone":                         {podOf(req("cpu", "1")), "a", 999},
		"a limit is no request":             {podOf(both(list("memory", "0"), list("memory", "1Gi"))), "a", 999},
		"what the node needs most":          {pod(func(s *v1.PodSpec) { s.Priority, s.PriorityClassName = &priority, "system-node-critical" }, req("cpu", "1")), "a", -997},
		"the cluster's are not":             {pod(func(s *v1.PodSpec) { s.Priority, s.PriorityClassName = &priority, "system-cluster-critical" }, req("cpu", "1")), "a", 999},
		"a sidecar is as safe as the app":   {pod(sidecar(req("memory", "512Mi")), req("memory", "2Gi"), req("memory", "1Gi")), "side", 750},
		"or safer":                          {pod(sidecar(req("memory", "3Gi")), req("memory", "1Gi")), "side", 250},
		"the pod's request counts for each": {pod(func(s *v1.PodSpec) { s.Resources = &v1.ResourceRequirements{Requests: list("memory", "2Gi")} }, req("memory", "1Gi"), req("cpu", "1")), "b", 875},
		"and for one that asks":             {pod(func(s *v1.PodSpec) { s.Resources = &v1.ResourceRequirements{Requests: list("memory", "2Gi")} }, req("memory", "1Gi"), req("cpu", "1")), "a", 625},
		"a sidecar with a request of the pod's": {pod(func(s *v1.PodSpec) {
			sidecar(v1.ResourceRequirements{})(s)
			s.Resources = &v1.ResourceRequirements{Requests: list("memory", "2Gi")}
		}, req("memory", "1Gi")), "side", 625},
	} {
		for i := range c.pod.Spec.InitContainers {
			if c.pod.Spec.InitContainers[i].Name == c.container {
				if got := oomScoreAdj(c.pod, &c.pod.Spec.InitContainers[i], 4<<30); got != c.want {
					t.Errorf("%s: %d, want %d", name, got, c.want)
				}
			}
		}
		for i := range c.pod.Spec.Containers {
			if c.pod.Spec.Containers[i].Name == c.container {
				if got := oomScoreAdj(c.pod, &c.pod.Spec.Containers[i], 4<<30); got != c.want {
					t.Errorf("%s: %d, want %d", name, got, c.want)
				}
			}
		}
	}
}

// What a container's cgroup is told of memory beyond its limit.
func TestMemoryFiles(t *testing.T) {
	half := both(list("memory", "1Gi"), list("memory", "2Gi"))
	priority := int32(2_000_000_000)
	important := podOf(half)
	important.Spec.Priority = &priority
	v2 := NodeLimits{Memory: 4 << 30, Swap: 8 << 30, AllocatableMemory: 3 << 30, PageSize: 4096, CgroupV2: true, SwapLimit: true}
	with := func(n NodeLimits, change func(*NodeLimits)) NodeLimits { change(&n); return n }
	limited := with(v2, func(n *NodeLimits) { n.LimitedSwap = true })
	for name, c := range map[string]struct {
		pod  *v1.Pod
		node NodeLimits
		want map[string]string
		swap int64
	}{
		"v1 counts memory and swap":          {podOf(half), NodeLimits{SwapLimit: true, LimitedSwap: true, Throttling: 0.9, Tiered: true, KillAll: true}, nil, 2 << 30},
		"v1 that does not count it":          {podOf(half), NodeLimits{}, nil, 0},
		"v1 without a limit":                 {podOf(req("memory", "1Gi")), NodeLimits{SwapLimit: true}, nil, 0},
		"v2":                                 {podOf(half), v2, map[string]string{"memory.swap.max": "0"}, 0},
		"v2 that does not count swap":        {podOf(half), NodeLimits{CgroupV2: true}, nil, 0},
		"all processes go":                   {podOf(half), NodeLimits{CgroupV2: true, KillAll: true}, map[string]string{"memory.oom.group": "1"}, 0},
		"a quarter of the memory and swap":   {podOf(half), limited, map[string]string{"memory.swap.max": "2147483648"}, 0},
		"no swap for the guaranteed":         {podOf(v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi")}), limited, map[string]string{"memory.swap.max": "0"}, 0},
		"nor for best effort":                {podOf(v1.ResourceRequirements{}), limited, map[string]string{"memory.swap.max": "0"}, 0},
		"nor for the critical":               {important, limited, map[string]string{"memory.swap.max": "0"}, 0},
		"nor where the request is the limit": {podOf(both(list("memory", "1Gi"), list("memory", "1Gi"))), limited, map[string]string{"memory.swap.max": "0"}, 0},
		"nor without a request":              {podOf(req("cpu", "1")), limited, map[string]string{"memory.swap.max": "0"}, 0},
		"slowed down before the limit": {podOf(half), with(v2, func(n *NodeLimits) { n.SwapLimit, n.Throttling = false, 0.9 }),
			map[string]string{"memory.high": "2040107008"}, 0},
		"and before what there is": {podOf(req("memory", "1Gi")), with(v2, func(n *NodeLimits) { n.SwapLimit, n.Throttling = false, 0.5 }), map[string]string{"memory.high": "2147483648"}, 0},
		"but not where the request is the limit": {podOf(v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi"), Requests: list("cpu", "1", "memory", "1Gi")}),
			with(v2, func(n *NodeLimits) { n.SwapLimit, n.Throttling = false, 0.9 }), nil, 0},
		"kept for the guaranteed": {podOf(v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi"), Requests: list("cpu", "1", "memory", "1Gi")}),
			with(v2, func(n *NodeLimits) { n.SwapLimit, n.Tiered = false, true }), map[string]string{"memory.min": "1073741824"}, 0},
		"kept as long as can be": {podOf(half), with(v2, func(n *NodeLimits) { n.SwapLimit, n.Tiered = false, true }), map[string]string{"memory.low": "1073741824"}, 0},
		"nothing to keep":        {podOf(req("cpu", "1")), with(v2, func(n *NodeLimits) { n.SwapLimit, n.Tiered = false, true }), nil, 0},
	} {
		r := containerResources(&ContainerInput{Pod: c.pod, Container: &c.pod.Spec.Containers[0], Node: c.node})
		if !maps.Equal(r.Unified, c.want) || r.MemorySwapLimitInBytes != c.swap {
			t.Errorf("%s: %v and swap %d, want %v and %d", name, r.Unified, r.MemorySwapLimitInBytes, c.want, c.swap)
		}
	}
}

// What the pod is limited to as a whole, a container is that has no limit of its own; huge pages that nobody asks for, nobody gets.
func TestLimitsOfPods(t *testing.T) {
	pod := podOf(v1.ResourceRequirements{Requests: list("cpu", "0"), Limits: list("memory", "1Gi")}, v1.ResourceRequirements{})
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "2", "memory", "3Gi", "hugepages-2Mi", "8Mi")}
	node := NodeLimits{HugepageSizes: []string{"1GB", "2MB"}}
	got := func(i int) *cri.LinuxContainerResources {
		return containerResources(&ContainerInput{Pod: pod, Container: &pod.Spec.Containers[i], Node: node})
	}
	if r := got(0); r.CpuShares != 2 || r.CpuQuota != 200000 || r.MemoryLimitInBytes != 1<<30 {
		t.Errorf("a request of nothing, and a limit of its own: %v", r)
	}
	r := got(1)
	if r.CpuShares != 2048 || r.CpuQuota != 200000 || r.MemoryLimitInBytes != 3<<30 {
		t.Errorf("nothing of its own: %v", r)
	}
	if h := r.HugepageLimits; len(h) != 2 || h[0].PageSize != "1GB" || h[0].Limit != 0 || h[1].PageSize != "2MB" || h[1].Limit != 8<<20 {
		t.Errorf("huge pages: %v", h)
	}
	if q := pod.Spec.Containers[0].Resources.Limits; len(q) != 1 {
		t.Errorf("the specification was changed: %v", q)
	}
	sandbox := Sandbox(SandboxInput{Pod: pod}).Linux
	if s := sandbox.Resources; s.CpuShares != 1024 || s.CpuQuota != 200000 || s.MemoryLimitInBytes != 3<<30 || sandbox.Overhead != nil {
		t.Errorf("the sandbox: %v", sandbox)
	}
	pod.Spec.Overhead = list("cpu", "250m", "memory", "64Mi")
	if o := Sandbox(SandboxInput{Pod: pod}).Linux.Overhead; o.CpuShares != 256 || o.CpuQuota != 25000 || o.MemoryLimitInBytes != 64<<20 {
		t.Errorf("its overhead: %v", o)
	}
}
