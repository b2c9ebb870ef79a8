package podcgroup

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/admit"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	t    testing.TB
	host *cgroup.Host
	root string
	sums admit.QOSSums
	node podspec.NodeLimits
	log  bytes.Buffer
	*Manager
}

// below makes a manager below a cgroup of the test's own, which is gone after it.
func below(t testing.TB, systemd bool) *world {
	t.Helper()
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, host: host, root: fmt.Sprintf("/mp-test-podcgroup-%d-%d", os.Getpid(), time.Now().UnixNano())}
	w.node.CgroupV2 = host.Mode() == cgroup.V2
	w.Manager = New(Config{
		Host: host, Root: w.root, Driver: func() place.Driver { return place.Of(systemd) }, Node: func() podspec.NodeLimits { return w.node },
		Allocatable: func() v1.ResourceList { return list("cpu", "4", "memory", "1Gi") },
		Sums:        func() admit.QOSSums { return w.sums }, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	t.Cleanup(func() {
		if err := host.RemoveTree(w.root); err != nil {
			t.Error(err)
		}
	})
	return w
}

// dir is where a cgroup is that has the controller.
func (w *world) dir(controller, cgroup string) string {
	paths := w.host.Paths(filepath.Join(w.root, cgroup))
	if dir, ok := paths[controller]; ok {
		return dir
	}
	return paths[""]
}

// has holds a control file of v1, or of v2, against what it is to be; empty: there is no such file there.
func (w *world) has(cgroup, file1, want1, file2, want2 string) {
	w.t.Helper()
	file, want := file1, want1
	if w.host.Mode() == "v2" {
		file, want = file2, want2
	}
	if file == "" {
		return
	}
	controller, _, _ := strings.Cut(file, ".")
	got, err := os.ReadFile(filepath.Join(w.dir(controller, cgroup), file))
	if err != nil || strings.TrimSpace(string(got)) != want {
		w.t.Errorf("%s/%s is %q, %v; want %s", cgroup, file, got, err, want)
	}
}

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func podOf(uid string, containers ...v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid)}}
	for _, r := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: r})
	}
	return p
}

func TestCgroups(t *testing.T) {
	w := below(t, false)
	half := v1.ResourceRequirements{Requests: list("cpu", "500m", "memory", "64Mi"), Limits: list("cpu", "1", "memory", "128Mi")}
	guaranteed := podOf("1-g", v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "64Mi"), Limits: list("cpu", "1", "memory", "64Mi")})
	guaranteed.Spec.Overhead = list("cpu", "1", "memory", "64Mi")
	open := podOf("3-o", half, v1.ResourceRequirements{})
	whole := podOf("4-w", v1.ResourceRequirements{}, v1.ResourceRequirements{})
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "2"), Limits: list("memory", "256Mi")}
	for range 2 { // also of what is there
		for _, p := range []*v1.Pod{guaranteed, podOf("2-b", half, half), open, whole, podOf("5-n", v1.ResourceRequirements{})} {
			if err := w.Ensure(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	const none1, none2 = "9223372036854771712", "max"
	w.has("", "cpu.shares", "4096", "cpu.weight", "303")
	w.has("pods", "cpu.shares", "4096", "cpu.weight", "303")
	w.has("pods", "memory.limit_in_bytes", none1, "memory.max", none2)
	w.has("pods/besteffort", "cpu.shares", "2", "cpu.weight", "1")
	w.has("pods/burstable", "cpu.shares", "2", "cpu.weight", "1")
	w.has("pods/pod1-g", "cpu.shares", "2048", "cpu.max", "200000 100000")
	w.has("pods/pod1-g", "cpu.cfs_quota_us", "200000", "memory.max", "134217728")
	w.has("pods/pod1-g", "memory.limit_in_bytes", "134217728", "", "")
	w.has("pods/burstable/pod2-b", "cpu.shares", "1024", "cpu.weight", "100")
	w.has("pods/burstable/pod2-b", "memory.limit_in_bytes", "268435456", "memory.max", "268435456")
	w.has("pods/burstable/pod3-o", "cpu.shares", "512", "cpu.weight", "59")
	w.has("pods/burstable/pod3-o", "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")
	w.has("pods/burstable/pod3-o", "memory.limit_in_bytes", none1, "memory.max", none2)
	w.has("pods/burstable/pod4-w", "cpu.shares", "2048", "cpu.weight", "174")
	w.has("pods/burstable/pod4-w", "memory.limit_in_bytes", "268435456", "memory.max", "268435456")
	w.has("pods/besteffort/pod5-n", "cpu.shares", "2", "cpu.weight", "1")

	if err := w.Enforce(); err != nil {
		t.Error(err)
	}
	w.has("pods", "memory.limit_in_bytes", "1073741824", "memory.max", "1073741824")
	w.sums.BurstableMilliCPU = 1500
	if err := w.UpdateQoS(); err != nil {
		t.Error(err)
	}
	w.has("pods/burstable", "cpu.shares", "1536", "cpu.weight", "138")
	// What has not changed is not written.
	if err := os.WriteFile(filepath.Join(w.dir("cpu", "pods/burstable"), map[bool]string{true: "cpu.weight", false: "cpu.shares"}[w.node.CgroupV2]), []byte("7"), 0); err != nil {
		t.Fatal(err)
	}
	if err := w.UpdateQoS(); err != nil {
		t.Error(err)
	}
	w.has("pods/burstable", "cpu.shares", "7", "cpu.weight", "7")

	uids, err := w.UIDs()
	if slices.Sort(uids); err != nil || !slices.Equal(uids, []types.UID{"1-g", "2-b", "3-o", "4-w", "5-n"}) {
		t.Errorf("pods with cgroups: %q, %v", uids, err)
	}
	for _, uid := range append(uids, "1-g", "none") {
		if err := w.Remove(uid); err != nil {
			t.Error(err)
		}
	}
	if uids, err := w.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left: %q, %v", uids, err)
	}
	for _, bad := range []types.UID{"", ".", "..", "../burstable", "a/b"} {
		if err := w.Remove(bad); err == nil {
			t.Errorf("a pod with the UID %q was removed", bad)
		}
	}
	if there, err := w.host.Exists(w.root + "/pods/burstable"); err != nil || !there {
		t.Errorf("the class is gone: %v", err)
	}
}

// What a runtime has left below goes, and what lives there is named.
func TestRemoveWhatIsBelow(t *testing.T) {
	w := below(t, false)
	if err := w.Ensure(podOf("a", v1.ResourceRequirements{})); err != nil {
		t.Fatal(err)
	}
	container := w.root + "/pods/besteffort/poda/c"
	if _, err := w.host.Create(container); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for _, dir := range w.host.Paths(container) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Remove("a"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "pod a") || !strings.Contains(err.Error(), "sleep") {
		t.Errorf("with a process in it: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := w.Remove("a"); err != nil {
		t.Error(err)
	}
	if uids, err := w.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left: %q, %v", uids, err)
	}
}

// Where the memory that pods request is theirs, so it is at each level.
func TestTiers(t *testing.T) {
	w := below(t, false)
	if !w.node.CgroupV2 {
		t.Skip("it takes cgroup v2") // which the virtual machine of the tests has
	}
	w.node.Tiered, w.sums = true, admit.QOSSums{BurstableMemory: 8 << 20, GuaranteedMemory: 4 << 20}
	pod := podOf("a", v1.ResourceRequirements{Requests: list("memory", "8Mi")})
	if err := w.Ensure(pod); err != nil {
		t.Fatal(err)
	}
	w.has("pods", "", "", "memory.min", "12582912")
	w.has("pods/burstable", "", "", "memory.low", "8388608")
	w.has("pods/burstable/poda", "", "", "memory.low", "8388608")
}

func TestLimits(t *testing.T) {
	node := &podspec.NodeLimits{CgroupV2: true, Tiered: true}
	pages := v1.ResourceRequirements{Requests: list("memory", "1Mi", "hugepages-2Mi", "4Mi", "hugepages-1Gi", "1Gi"), Limits: list("hugepages-2Mi", "4Mi")}
	r := ofPod(podOf("a", pages, pages), node, []string{"2MB"})
	if len(r.Hugepages) != 1 || r.Hugepages["2MB"] != 8<<20 || r.Unified["memory.low"] != "2097152" || r.MemoryLimit != nil || *r.CPUShares != 2 {
		t.Errorf("%+v", r)
	}
	same := list("cpu", "1", "memory", "1Mi")
	r = ofPod(podOf("a", v1.ResourceRequirements{Requests: same, Limits: same}), node, nil)
	if r.Unified["memory.min"] != "1048576" || *r.MemoryLimit != 1<<20 || *r.CPUQuota != 100000 || *r.CPUPeriod != 100000 {
		t.Errorf("%+v", r)
	}
}

// A runtime that has systemd make its cgroups on a host with v1 is left to itself, and the log says so once.
func TestSystemdWithV1(t *testing.T) {
	w := below(t, true)
	if w.node.CgroupV2 {
		t.Skip("this host has cgroup v2") // where systemd makes them, if it runs
	}
	for range 2 {
		uids, err := w.UIDs()
		for _, err := range []error{err, w.Prepare(), w.Enforce(), w.Ensure(podOf("a", v1.ResourceRequirements{})), w.UpdateQoS(), w.Remove("a")} {
			if err != nil || len(uids) > 0 {
				t.Error(uids, err)
			}
		}
	}
	if n := strings.Count(w.log.String(), "set the runtime's driver to cgroupfs"); n != 1 {
		t.Errorf("told %d times: %s", n, &w.log)
	}
	if there, err := w.host.Exists(w.root); err != nil || there {
		t.Errorf("a cgroup was made: %v", err)
	}
}

func BenchmarkEnsureRemove(b *testing.B) {
	w := below(b, false)
	pod := podOf("a", v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "64Mi"), Limits: list("cpu", "1", "memory", "64Mi")})
	if err := w.Ensure(pod); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := w.Ensure(pod); err != nil {
			b.Fatal(err)
		}
		if err := w.Remove("a"); err != nil {
			b.Fatal(err)
		}
	}
}
