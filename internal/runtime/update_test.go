package runtime_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
)

func (n *node) tryUpdate(id string, r *cri.LinuxContainerResources) error {
	_, err := n.rt.UpdateContainerResources(n.ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// limit reads a limit of a cgroup, in the file of this host's version.
func (n *node) limit(path, controller, v1, v2 string) string {
	n.Helper()
	host, err := cgroup.Detect()
	n.check(err)
	dir, file := host.Paths(path)[controller], v1
	if host.Mode() == cgroup.V2 {
		dir, file = host.Paths(path)[""], v2
	}
	raw, err := os.ReadFile(filepath.Join(dir, file))
	n.check(err)
	return strings.TrimSpace(string(raw))
}

func (n *node) containerCgroup(sandbox, id string) string {
	return filepath.Join(n.cgroupRoot, "pods", sandbox, id)
}

func v2(n *node) bool {
	host, err := cgroup.Detect()
	n.check(err)
	return host.Mode() == cgroup.V2
}

func TestUpdateContainerResources(t *testing.T) {
	n := newNode(t)
	sb := n.run("update")
	c := shell("c", sleeper)
	c.Linux.Resources = &cri.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 20000, MemoryLimitInBytes: 64 << 20, OomScoreAdj: 500}
	id := n.create(sb, c)
	path := n.containerCgroup(sb, id)
	memory := func() string { return n.limit(path, "memory", "memory.limit_in_bytes", "memory.max") }
	quota := func() string {
		if v2(n) {
			return n.limit(path, "cpu", "", "cpu.max")
		}
		return n.limit(path, "cpu", "cpu.cfs_quota_us", "") + " " + n.limit(path, "cpu", "cpu.cfs_period_us", "")
	}
	// The score of the container's own process, and of a command in it, which gets it as it starts.
	score := func() string {
		return n.exec(id, "sh", "-c", "s=$(cat /proc/1/oom_score_adj); until [ $(cat /proc/$$/oom_score_adj) = $s ]; do :; done; echo $s")
	}
	resources := func() *cri.LinuxContainerResources { return n.status(id).GetResources().GetLinux() }

	// Before the start.
	n.check(n.tryUpdate(id, &cri.LinuxContainerResources{MemoryLimitInBytes: 96 << 20}))
	n.check(n.tryStart(id))
	if memory() != strconv.Itoa(96<<20) || quota() != "20000 100000" || score() != "500" {
		t.Errorf("memory %s, cpu %s, score %q", memory(), quota(), score())
	}
	// While it runs: what is not named stays.
	n.check(n.tryUpdate(id, &cri.LinuxContainerResources{CpuQuota: 30000, CpuShares: 1024, CpusetCpus: "0", OomScoreAdj: 700}))
	if memory() != strconv.Itoa(96<<20) || quota() != "30000 100000" || score() != "700" || n.limit(path, "cpuset", "cpuset.cpus", "cpuset.cpus") != "0" {
		t.Errorf("memory %s, cpu %s, score %q, cpuset %s", memory(), quota(), score(), n.limit(path, "cpuset", "cpuset.cpus", "cpuset.cpus"))
	}
	if got := resources(); got.GetCpuQuota() != 30000 || got.GetCpuPeriod() != 100000 || got.GetCpuShares() != 1024 || got.GetMemoryLimitInBytes() != 96<<20 || got.GetOomScoreAdj() != 700 || got.GetCpusetCpus() != "0" {
		t.Errorf("the status tells %v", got)
	}
	// A repeated create is still the same one: the configuration is what the client gave.
	if again := n.create(sb, c); again != id {
		t.Errorf("a repeated create made %s", again)
	}

	t.Run("after a restart", func(t *testing.T) {
		before := resources()
		n.restart()
		if got := resources(); !proto.Equal(got, before) {
			t.Errorf("%v, was %v", got, before)
		}
		n.check(n.tryUpdate(id, &cri.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, OomScoreAdj: 600}))
		if memory() != strconv.Itoa(128<<20) || score() != "600" {
			t.Errorf("memory %s, score %q", memory(), score())
		}
	})
	t.Run("all or nothing", func(t *testing.T) {
		before := []string{memory(), quota(), score()}
		told := resources()
		for name, r := range map[string]*cri.LinuxContainerResources{
			"a processor that is not there": {MemoryLimitInBytes: 80 << 20, CpuQuota: 40000, OomScoreAdj: 400, CpusetCpus: "60000"},
			"a quota that cannot be":        {MemoryLimitInBytes: 80 << 20, OomScoreAdj: 400, CpuQuota: 1},
			"less memory than is in use":    {CpuQuota: 40000, OomScoreAdj: 400, MemoryLimitInBytes: 4096},
			"a negative period":             {MemoryLimitInBytes: 80 << 20, CpuPeriod: -1},
			"no file of a controller":       {MemoryLimitInBytes: 80 << 20, Unified: map[string]string{"cgroup.kill": "1"}},
			"a page size that is not there": pageSizeOfNone(t),
		} {
			if err := n.tryUpdate(id, r); err == nil {
				t.Errorf("%s: no error", name)
			} else {
				t.Log(err)
			}
			if after := []string{memory(), quota(), score()}; strings.Join(after, ";") != strings.Join(before, ";") {
				t.Errorf("%s: %q, was %q", name, after, before)
			}
			if got := resources(); !proto.Equal(got, told) {
				t.Errorf("%s: the status tells %v, was %v", name, got, told)
			}
		}
	})
	t.Run("its own score stays", func(t *testing.T) {
		n.exec(id, "sh", "-c", "echo 900 > /proc/1/oom_score_adj")
		n.check(n.tryUpdate(id, &cri.LinuxContainerResources{OomScoreAdj: 650}))
		if got := n.exec(id, "cat", "/proc/1/oom_score_adj"); got != "900" {
			t.Error(got)
		}
	})

	_, err := n.rt.UpdateContainerResources(n.ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id})
	wantCode(t, err, codes.InvalidArgument, "linux")
	_, err = n.rt.UpdateContainerResources(n.ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: &cri.LinuxContainerResources{}, Windows: &cri.WindowsContainerResources{}})
	wantCode(t, err, codes.InvalidArgument, "windows")
	wantCode(t, n.tryUpdate(strings.Repeat("0", 64), &cri.LinuxContainerResources{CpuShares: 5}), codes.NotFound)
	n.check(n.tryStop(id, 10))
	wantCode(t, n.tryUpdate(id, &cri.LinuxContainerResources{CpuShares: 5}), codes.FailedPrecondition, "EXITED")
}

// TestDevicesSurviveUpdates: no update takes a device away that the container was given, nor gives it another one.
func TestDevicesSurviveUpdates(t *testing.T) {
	n := newNode(t)
	sb := n.run("devices")
	dev := filepath.Join(n.dir, "zero")
	n.check(unix.Mknod(dev, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // that of /dev/zero, which is allowed anyway
	c := shell("c", sleeper)
	c.Devices = []*cri.Device{{HostPath: "/dev/fuse", ContainerPath: "/dev/fuse", Permissions: "rw"}, {HostPath: dev, ContainerPath: "/dev/mine", Permissions: "r"}}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		c.Devices = c.Devices[1:]
	}
	id := n.launch(sb, c)
	try := func() string {
		return n.exec(id, "sh", "-c", `for d in /dev/fuse /dev/mine /dev/null; do [ -e $d ] && (: < $d) 2>/dev/null && echo $d; done
			rm -f /tmp/mem; mknod /tmp/mem c 1 1 && (: < /tmp/mem) 2>&1 | grep -o 'not permitted'`)
	}
	before := try()
	if !strings.Contains(before, "/dev/mine") || !strings.Contains(before, "not permitted") {
		t.Fatal(before)
	}
	for _, r := range []*cri.LinuxContainerResources{{CpuShares: 100}, {MemoryLimitInBytes: 64 << 20}, {CpusetCpus: "0"}} {
		n.check(n.tryUpdate(id, r))
		if after := try(); after != before {
			t.Errorf("after %v: %q, was %q", r, after, before)
		}
	}
	n.restart()
	n.check(n.tryUpdate(id, &cri.LinuxContainerResources{CpuShares: 200}))
	if after := try(); after != before {
		t.Errorf("%q, was %q", after, before)
	}
}

// TestUpdateIsFinished: one that a crash has cut holds after the restart, and is told.
func TestUpdateIsFinished(t *testing.T) {
	for _, point := range []string{"runtime/container-update/persisted", "runtime/container-update/applied"} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			n := newNode(t)
			sb := n.run("cut")
			id := n.launch(sb, shell("cut", sleeper))
			rt := n.rt
			n.crash(point, func() {
				_, _ = rt.UpdateContainerResources(n.ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}})
			})
			path := n.containerCgroup(sb, id)
			if got := n.limit(path, "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(48<<20) {
				t.Errorf("the limit is %s", got)
			}
			if got := n.status(id).GetResources().GetLinux().GetMemoryLimitInBytes(); got != 48<<20 {
				t.Errorf("the status tells %d", got)
			}
		})
	}
	t.Run("pod", func(t *testing.T) {
		n := newNode(t)
		sb := n.run("cut")
		rt := n.rt
		n.crash("runtime/sandbox-update/persisted", func() {
			_, _ = rt.UpdatePodSandboxResources(n.ctx, &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: sb, Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}})
		})
		if got := n.limit(filepath.Join(n.cgroupRoot, "pods", sb), "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(48<<20) {
			t.Errorf("the limit is %s", got)
		}
	})
}

func TestUpdatePodSandboxResources(t *testing.T) {
	n := newNode(t)
	update := func(id string, overhead, resources *cri.LinuxContainerResources) error {
		_, err := n.rt.UpdatePodSandboxResources(n.ctx, &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Overhead: overhead, Resources: resources})
		return err
	}
	cfg := n.sandboxConfig("pod")
	cfg.Linux.Overhead = &cri.LinuxContainerResources{MemoryLimitInBytes: 16 << 20}
	cfg.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuShares: 512}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	sb := resp.GetPodSandboxId()
	path := filepath.Join(n.cgroupRoot, "pods", sb)
	memory := func() int64 {
		v, err := strconv.ParseInt(n.limit(path, "memory", "memory.limit_in_bytes", "memory.max"), 10, 64)
		n.check(err)
		return v >> 20
	}
	if memory() != 80 {
		t.Errorf("%d MiB", memory())
	}
	n.check(update(sb, nil, &cri.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, CpuQuota: 50000, CpuPeriod: 100000}))
	if memory() != 144 {
		t.Errorf("%d MiB with the overhead that there was", memory())
	}
	n.restart()
	n.check(update(sb, &cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}, nil))
	if memory() != 160 {
		t.Errorf("%d MiB with the resources that there were", memory())
	}
	if err := update(sb, nil, &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpusetCpus: "60000"}); err == nil || memory() != 160 {
		t.Errorf("%v, %d MiB", err, memory())
	}
	if again, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg}); err != nil || again.GetPodSandboxId() != sb {
		t.Errorf("a repeated run: %v, %v", again, err)
	}
	wantCode(t, update(sb, nil, nil), codes.InvalidArgument, "overhead", "resources")
	wantCode(t, update(sb, nil, &cri.LinuxContainerResources{MemoryLimitInBytes: -5}), codes.InvalidArgument, "memory_limit_in_bytes")
	n.check(stopSandbox(n, sb))
	wantCode(t, update(sb, nil, &cri.LinuxContainerResources{CpuShares: 7}), codes.FailedPrecondition)

	// A cgroup that its client has made is not touched.
	host, err := cgroup.Detect()
	n.check(err)
	theirs := n.cgroupRoot + "/kubepods/pod1"
	_, err = host.Create(theirs)
	n.check(err)
	n.check(host.Set(theirs, cgroup.Resources{MemoryLimit: new(int64(100 << 20))}))
	cfg = n.sandboxConfig("theirs")
	cfg.Linux.CgroupParent = theirs
	resp, err = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	n.check(update(resp.GetPodSandboxId(), nil, &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}))
	if got := n.limit(theirs, "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(100<<20) {
		t.Errorf("the client's limit became %s", got)
	}
}

// pageSizeOfNone is an update with huge pages of a size that there is not; without the controller no size is limited, and a negative period is as wrong.
func pageSizeOfNone(t *testing.T) *cri.LinuxContainerResources {
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	r := &cri.LinuxContainerResources{MemoryLimitInBytes: 80 << 20, HugepageLimits: []*cri.HugepageLimit{{PageSize: "3MB", Limit: 1}}}
	if len(host.HugepageSizes()) == 0 {
		r.CpuPeriod = -1
	}
	return r
}

// TestLimitsOfTheVersion: limits that one version of cgroups, or one kernel, has and another has not are set, refused by name, or, where nothing
// is counted that could be limited, without effect and not told to be in force.
func TestLimitsOfTheVersion(t *testing.T) {
	n := newNode(t)
	sb := n.run("version")
	host, err := cgroup.Detect()
	n.check(err)

	pages := shell("pages", sleeper)
	pages.Linux.Resources = &cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB"}}}
	id, err := n.tryCreate(sb, pages)
	if sizes := host.HugepageSizes(); slices.Contains(sizes, "2MB") {
		n.check(err)
		limit := func() string {
			if host.SplitHugetlb() {
				return n.limit(n.containerCgroup(sb, id), "", "hugetlb.2MB.max", "") + " " + n.limit(n.containerCgroup(sb, id), "", "hugetlb.1GB.max", "")
			}
			return n.limit(n.containerCgroup(sb, id), "hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max") + " " +
				n.limit(n.containerCgroup(sb, id), "hugetlb", "hugetlb.1GB.limit_in_bytes", "hugetlb.1GB.max")
		}
		if got := limit(); got != strconv.Itoa(4<<20)+" 0" {
			t.Errorf("huge pages: %s", got)
		}
		n.check(n.tryUpdate(id, &cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 6 << 20}}}))
		if got := limit(); got != strconv.Itoa(6<<20)+" 0" {
			t.Errorf("huge pages after the update: %s", got)
		}
	} else {
		n.check(err)
		if got := n.status(id).GetResources().GetLinux().GetHugepageLimits(); len(got) != 0 {
			t.Errorf("limits of huge pages that nothing holds are told: %v", got)
		}
	}

	unified := shell("unified", sleeper)
	unified.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, Unified: map[string]string{"memory.high": strconv.Itoa(48 << 20), "memory.oom.group": "1", "pids.max": "50"}}
	id, err = n.tryCreate(sb, unified)
	if v2(n) {
		n.check(err)
		path := n.containerCgroup(sb, id)
		for file, want := range unified.Linux.Resources.Unified {
			if got := n.limit(path, "", "", file); got != want {
				t.Errorf("%s is %s, want %s", file, got, want)
			}
		}
		n.check(n.tryUpdate(id, &cri.LinuxContainerResources{Unified: map[string]string{"memory.high": strconv.Itoa(32 << 20)}}))
		if got := n.limit(path, "", "", "memory.high") + " " + n.limit(path, "", "", "pids.max"); got != strconv.Itoa(32<<20)+" 50" {
			t.Errorf("memory.high and pids.max are %s after the update", got)
		}
	} else {
		wantCode(t, err, codes.FailedPrecondition, "unified", "cgroup v2")
	}

	swap := shell("swap", sleeper)
	swap.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 96 << 20}
	id, err = n.tryCreate(sb, swap)
	switch {
	case !host.HasSwapLimit():
		n.check(err)
		if got := n.status(id).GetResources().GetLinux().GetMemorySwapLimitInBytes(); got != 0 {
			t.Errorf("a limit of swap that nothing holds is told: %d", got)
		}
	case v2(n):
		n.check(err)
		if got := n.limit(n.containerCgroup(sb, id), "memory", "", "memory.swap.max"); got != strconv.Itoa(32<<20) {
			t.Errorf("swap alone: %s", got)
		}
	default:
		n.check(err)
		if got := n.limit(n.containerCgroup(sb, id), "memory", "memory.memsw.limit_in_bytes", ""); got != strconv.Itoa(96<<20) {
			t.Errorf("memory and swap: %s", got)
		}
		// More memory than both were before: v1 wants the sum first.
		n.check(n.tryUpdate(id, &cri.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, MemorySwapLimitInBytes: 128 << 20}))
	}
}
