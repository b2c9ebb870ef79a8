package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if pages, err := strconv.Atoi(os.Getenv(hugeChild)); err == nil {
		os.Exit(mapHuge(pages))
	}
	goleak.VerifyTestMain(m)
}

// detect returns the host's layout, and the path of a cgroup of the test's own, which is gone after it.
func detect(t *testing.T) (*Host, string) {
	t.Helper()
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("/mp-test-cg-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if err := h.RemoveTree(root); err != nil {
			t.Error(err)
		}
		if left, err := h.Exists(root); err != nil || left {
			t.Errorf("left cgroup %s: %v, %v", root, left, err)
		}
	})
	return h, root
}

// join moves a process into the cgroup, in all hierarchies.
func join(t *testing.T, h *Host, path string, pid int) {
	t.Helper()
	for _, dir := range h.Paths(path) {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			t.Fatal(err)
		}
	}
}

// sleeper starts a process, which is killed and reaped after the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func read(t *testing.T, elems ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elems...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestDetect(t *testing.T) {
	h, _ := detect(t)
	t.Logf("%s: %v, swap limit %v, huge pages %v, %v", h.Mode(), h.Controllers(), h.HasSwapLimit(), h.HugepageSizes(), h.Paths("/"))
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !h.HasController(c) {
			t.Errorf("no controller %s", c)
		}
	}
	if h.HasController("nonsense") || h.HasController("name=systemd") {
		t.Error("it has a controller that cannot be")
	}
}

func TestLayouts(t *testing.T) {
	v1 := func(mountpoint, options string) *mountinfo.Info {
		return &mountinfo.Info{Mountpoint: mountpoint, FSType: "cgroup", VFSOptions: options}
	}
	v2 := func(mountpoint string) *mountinfo.Info {
		return &mountinfo.Info{Mountpoint: mountpoint, FSType: "cgroup2", VFSOptions: "rw,nsdelegate"}
	}
	for name, c := range map[string]struct {
		mounts []*mountinfo.Info
		mode   Mode
		paths  map[string]string
	}{
		"v2": {[]*mountinfo.Info{v2("/c"), v2("/again")}, V2, map[string]string{"": "/c/x"}},
		"v1": {[]*mountinfo.Info{v1("/c/cpu,cpuacct", "rw,cpu,cpuacct"), v1("/c/memory", "rw,memory"), v1("/other", "rw,memory"),
			v1("/c/systemd", "rw,xattr,release_agent=/lib/agent,name=systemd")}, V1,
			map[string]string{"cpu": "/c/cpu,cpuacct/x", "cpuacct": "/c/cpu,cpuacct/x", "memory": "/c/memory/x", "name=systemd": "/c/systemd/x"}},
		"hybrid": {[]*mountinfo.Info{v1("/c/pids", "rw,pids"), v2("/c/unified")}, Hybrid,
			map[string]string{"pids": "/c/pids/x", "": "/c/unified/x"}},
		"v2 with a named hierarchy": {[]*mountinfo.Info{v1("/c/systemd", "rw,name=systemd"), v2("/c/unified")}, V2,
			map[string]string{"": "/c/unified/x"}},
		"none": {nil, V1, map[string]string{}},
	} {
		h := fromMounts(c.mounts)
		if got := h.Paths("/x"); h.Mode() != c.mode || !maps.Equal(got, c.paths) {
			t.Errorf("%s: %s, %v; want %s, %v", name, h.Mode(), got, c.mode, c.paths)
		}
	}
}

func TestCreateAndRemove(t *testing.T) {
	h, root := detect(t)
	path := root + "/pods/pod1"
	if there, err := h.Exists(path); err != nil || there {
		t.Errorf("Exists before Create: %v, %v", there, err)
	}
	for _, want := range []bool{true, false} {
		if created, err := h.Create(path); err != nil || created != want {
			t.Errorf("Create = %v, %v, want %v", created, err, want)
		}
	}
	for name, dir := range h.Paths(path) {
		if !exists(dir) {
			t.Errorf("%s: no %s", name, dir)
		}
	}
	if names, err := h.Children(root); err != nil || !slices.Equal(names, []string{"pods"}) {
		t.Errorf("Children = %v, %v", names, err)
	}
	if names, err := h.Children(root + "/none"); err != nil || len(names) > 0 {
		t.Errorf("Children of a missing cgroup = %v, %v", names, err)
	}
	proc := sleeper(t)
	join(t, h, path, proc.Process.Pid) // which a v1 cpuset without processors would refuse
	if pids, err := h.Processes(root); err != nil || !slices.Equal(pids, []int{proc.Process.Pid}) {
		t.Errorf("Processes = %v, %v", pids, err)
	}
	err := h.Remove(path)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), fmt.Sprintf("%d sleep", proc.Process.Pid)) {
		t.Errorf("Remove with a process: %v, want FailedPrecondition that names it", err)
	}
	if err := h.Remove(root); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Remove with children: %v, want FailedPrecondition", err)
	}
	proc.Process.Kill()
	proc.Wait()
	for range 2 {
		if err := h.RemoveTree(path); err != nil {
			t.Error(err)
		}
		if err := h.Remove(path); err != nil {
			t.Error(err)
		}
		if there, err := h.Exists(path); err != nil || there {
			t.Errorf("Exists after Remove: %v, %v", there, err)
		}
	}
	if pids, err := h.Processes(path); err != nil || len(pids) > 0 {
		t.Errorf("Processes of a removed cgroup = %v, %v", pids, err)
	}
}

// On v2, where a cgroup below one with processes cannot have controllers, that is said.
func TestCreateBelowProcesses(t *testing.T) {
	h, root := detect(t)
	if _, err := h.Create(root + "/full"); err != nil {
		t.Fatal(err)
	}
	join(t, h, root+"/full", sleeper(t).Process.Pid)
	_, err := h.Create(root + "/full/below")
	if h.Mode() == V2 {
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("Create below a cgroup with processes: %v, want FailedPrecondition", err)
		}
		if there, _ := h.Exists(root + "/full/below"); there {
			t.Error("the failed Create left something")
		}
	} else if err != nil {
		t.Error(err)
	}
}

func TestRemoveTreeWaitsForTheDying(t *testing.T) {
	h, root := detect(t)
	for _, p := range []string{"/a/b/c", "/a/d"} {
		if _, err := h.Create(root + p); err != nil {
			t.Fatal(err)
		}
	}
	proc := sleeper(t)
	join(t, h, root+"/a/b/c", proc.Process.Pid)
	done := make(chan error, 1)
	timer := time.AfterFunc(100*time.Millisecond, func() { done <- errors.Join(proc.Process.Kill(), ignoreKilled(proc.Wait())) })
	defer timer.Stop()
	start := time.Now()
	if err := h.RemoveTree(root + "/a"); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < 50*time.Millisecond || took > removeTreeTimeout {
		t.Errorf("RemoveTree took %v, the process lived 100 ms", took)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func ignoreKilled(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

func TestRemoveTreeNamesTheLiving(t *testing.T) {
	h, root := detect(t)
	if _, err := h.Create(root + "/a"); err != nil {
		t.Fatal(err)
	}
	proc := sleeper(t)
	join(t, h, root+"/a", proc.Process.Pid)
	err := h.RemoveTree(root)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), fmt.Sprintf("%d sleep", proc.Process.Pid)) {
		t.Errorf("RemoveTree: %v, want FailedPrecondition that names the process", err)
	}
}

func TestPathsAreChecked(t *testing.T) {
	h, _ := detect(t)
	for _, path := range []string{"", "/", "relative", "/a/../b", "/a/", "//a"} {
		_, cerr := h.Create(path)
		_, eerr := h.Exists(path)
		_, perr := h.Processes(path)
		for op, err := range map[string]error{"Create": cerr, "Exists": eerr, "Processes": perr, "Remove": h.Remove(path),
			"RemoveTree": h.RemoveTree(path), "Set": h.Set(path, Resources{})} {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s(%q): %v, want InvalidArgument", op, path, err)
			}
		}
	}
}

func TestSet(t *testing.T) {
	h, root := detect(t)
	if _, err := h.Create(root); err != nil {
		t.Fatal(err)
	}
	check := func(controller, v1File, v1, v2File, v2 string) {
		t.Helper()
		file, want := v1File, v1
		if h.Mode() == V2 {
			file, want = v2File, v2
		}
		if got := read(t, h.controllers[controller], root, file); got != want {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
	set := func(r Resources) {
		t.Helper()
		if err := h.Set(root, r); err != nil {
			t.Error(err)
		}
	}
	set(Resources{CPUShares: new(uint64(512)), CPUQuota: new(int64(50000)), CPUPeriod: new(uint64(100000)),
		MemoryLimit: new(int64(64 << 20)), PidsLimit: new(int64(100))})
	check("cpu", "cpu.shares", "512", "cpu.weight", "59")
	check("cpu", "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000")
	check("cpu", "cpu.cfs_period_us", "100000", "cpu.max", "50000 100000")
	check("memory", "memory.limit_in_bytes", "67108864", "memory.max", "67108864")
	check("pids", "pids.max", "100", "pids.max", "100")

	set(Resources{CPUQuota: new(int64(-1)), MemoryLimit: new(int64(-1)), PidsLimit: new(int64(-1))})
	check("cpu", "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")
	check("cpu", "cpu.shares", "512", "cpu.weight", "59")
	check("pids", "pids.max", "max", "pids.max", "max")

	// A child's share of its parent bounds the order in which quota and period can be written on v1.
	set(Resources{CPUQuota: new(int64(50000)), CPUPeriod: new(uint64(100000))})
	child := root + "/child"
	if _, err := h.Create(child); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Resources{
		{CPUQuota: new(int64(50000)), CPUPeriod: new(uint64(100000))},
		{CPUQuota: new(int64(10000)), CPUPeriod: new(uint64(20000))},
		{CPUQuota: new(int64(50000)), CPUPeriod: new(uint64(100000))},
	} {
		if err := h.Set(child, r); err != nil {
			t.Error(err)
		}
	}

	if err := h.Set(root+"/missing", Resources{PidsLimit: new(int64(1))}); !errdefs.IsNotFound(err) {
		t.Errorf("Set of a missing cgroup: %v, want NotFound", err)
	}
	if err := h.Set(root, Resources{CPUPeriod: new(uint64(1000))}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("period without quota: %v, want InvalidArgument", err)
	}
	without := &Host{mode: h.mode, hierarchies: h.hierarchies}
	if err := without.Set(root, Resources{PidsLimit: new(int64(1))}); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), `"pids"`) {
		t.Errorf("no controller: %v, want FailedPrecondition that names it", err)
	}
}

func TestWeight(t *testing.T) {
	for shares, want := range map[uint64]uint64{0: 1, 2: 1, 3: 2, 102: 17, 512: 59, 1024: 100, 2048: 174, 262144: 10000, 1 << 40: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("weight(%d) = %d, want %d", shares, got, want)
		}
	}
	for s := uint64(2); s < 300000; s++ {
		if w := weight(s); w < weight(s-1) || w < 1 || w > 10000 {
			t.Fatalf("weight(%d) = %d: not growing from 1 to 10000", s, w)
		}
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	h, err := Detect()
	if err != nil {
		b.Fatal(err)
	}
	path := fmt.Sprintf("/mp-test-cg-bench-%d", os.Getpid())
	for b.Loop() {
		if _, err := h.Create(path); err != nil {
			b.Fatal(err)
		}
		if err := h.Remove(path); err != nil {
			b.Fatal(err)
		}
	}
}
