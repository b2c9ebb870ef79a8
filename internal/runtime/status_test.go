package runtime_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (n *node) nodeStatus() *cri.StatusResponse {
	n.Helper()
	resp, err := n.rt.Status(n.ctx, &cri.StatusRequest{Verbose: true})
	n.check(err)
	return resp
}

// info reads the info of a verbose answer, and fails the test if a part of it is no JSON.
func info(t testing.TB, raw map[string]string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for name, text := range raw {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Errorf("info %s is no JSON: %v: %s", name, err, text)
		}
		all[name] = v
	}
	return all
}

// at follows names into JSON objects; nil when there is no such value.
func at(v any, names ...string) any {
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func TestStatusOfExecutor(t *testing.T) {
	n := newNode(t)
	ready := func() *cri.RuntimeCondition { return n.nodeStatus().GetStatus().GetConditions()[0] }
	all := info(t, n.nodeStatus().GetInfo())
	for _, path := range [][]string{{"host", "cgroupMode"}, {"host", "cgroupDriver"}, {"host", "capabilities"}, {"executor", "build"}, {"executor", "go"},
		{"executor", "libraries", "github.com/opencontainers/runc"}, {"config", "dataDir"}, {"config", "defaultRuntimeHandler"}, {"golang"}} {
		if at(all, path...) == nil {
			t.Errorf("%s is not told: %v", strings.Join(path, "."), all)
		}
	}
	clamped, _ := at(all, "host", "clamped").([]any)
	if limited := at(all, "host", "minOOMScoreAdj") != nil; limited != slices.ContainsFunc(clamped, func(v any) bool { return strings.HasPrefix(v.(string), "oom_score_adj:") }) {
		t.Errorf("clamped is %v, the lowest oom_score_adj %v", clamped, at(all, "host", "minOOMScoreAdj"))
	}
	if c := ready(); !c.GetStatus() || c.GetReason() != "" {
		t.Errorf("condition %v", c)
	}
	// A worker that hangs: nobody waits for it, and soon it is told.
	pid, _ := at(all, "executor", "workerPID").(float64)
	n.check(unix.Kill(int(pid), unix.SIGSTOP))
	var took time.Duration
	n.eventually("the executor to be missed", func() bool {
		begin := time.Now()
		resp, err := n.rt.Status(n.ctx, &cri.StatusRequest{})
		took = max(took, time.Since(begin))
		n.check(err)
		c := resp.GetStatus().GetConditions()[0]
		return !c.GetStatus() && c.GetReason() == "ExecutorNotReady" && strings.Contains(c.GetMessage(), "no answer")
	})
	if took > patience()/10 {
		t.Errorf("a status took %v", took)
	}
	if e := at(info(t, n.nodeStatus().GetInfo()), "executor", "error"); e == nil {
		t.Error("the verbose status does not tell what is amiss")
	}
	n.check(unix.Kill(int(pid), unix.SIGCONT))
	n.eventually("the executor to be there again", func() bool { return ready().GetStatus() })
	// One that dies has a successor, which is told as soon as it answers.
	n.check(unix.Kill(int(pid), unix.SIGKILL))
	n.eventually("a successor", func() bool {
		now, _ := at(info(t, n.nodeStatus().GetInfo()), "executor", "workerPID").(float64)
		return now != 0 && now != pid && ready().GetStatus()
	})
}

func TestUpdateRuntimeConfig(t *testing.T) {
	n := newNode(t)
	update := func(cidr string) error {
		_, err := n.rt.UpdateRuntimeConfig(n.ctx, &cri.UpdateRuntimeConfigRequest{RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: cidr}}})
		return err
	}
	address := func(sb string) netip.Addr {
		t.Helper()
		a, err := netip.ParseAddr(n.sandboxStatus(sb).GetNetwork().GetIp())
		n.check(err)
		return a
	}
	before := n.run("before")
	old := address(before)
	for _, req := range []*cri.UpdateRuntimeConfigRequest{{}, {RuntimeConfig: &cri.RuntimeConfig{}}, {RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{}}}} {
		_, err := n.rt.UpdateRuntimeConfig(n.ctx, req)
		n.check(err)
	}
	for _, bad := range []string{"10.1.2.3", "nonsense", "10.1.2.0/24,10.1.3.0/24", "10.1.2.0/24,", "10.1.2.0/31"} {
		wantCode(t, update(bad), codes.InvalidArgument, strings.TrimSuffix(bad, ","))
	}
	if n.run("unchanged"); t.Failed() {
		return
	}
	// The neighbouring range, which no other test's node has at this time.
	b := n.cidr.Addr().As4()
	next := netip.PrefixFrom(netip.AddrFrom4([4]byte{b[0], b[1], b[2] + 100, 0}), 24)
	n.check(update(next.String()))
	if got := address(n.run("after")); !next.Contains(got) {
		t.Errorf("a sandbox has %v after the range has become %v", got, next)
	}
	if got := address(before); got != old {
		t.Errorf("a sandbox's address was %v and is %v", old, got)
	}
	n.restart()
	if got := address(n.run("restarted")); !next.Contains(got) {
		t.Errorf("after a restart a sandbox has %v, the range is %v", got, next)
	}
}

func TestVerboseInfo(t *testing.T) {
	n := newNode(t)
	sb := n.run("pod")
	cfg := shell("c", sleeper)
	cfg.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 * mib, CpuShares: 512}
	cfg.Linux.SecurityContext.NoNewPrivs = true
	id := n.launch(sb, cfg)
	verbose := func() map[string]any {
		t.Helper()
		resp, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
		n.check(err)
		got, _ := info(t, resp.GetInfo())["info"].(map[string]any)
		return got
	}
	got := verbose()
	if at(got, "sandboxID") != sb || at(got, "runtimeType") != "native" || at(got, "config", "metadata", "name") != "c" || at(got, "runtimeSpec", "process", "args") == nil {
		t.Errorf("info %v", got)
	}
	for _, name := range []string{"rootfs", "writableLayer", "bundle"} {
		path, _ := got[name].(string)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s %q: %v", name, path, err)
		}
	}
	pid, _ := got["pid"].(float64)
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", int(pid))); err != nil || string(comm) != "sh\n" {
		t.Errorf("pid %v is %q, %v", pid, comm, err)
	}
	e := got["effective"]
	if at(e, "cgroup", "memory") != float64(64*mib) || at(e, "noNewPrivileges") != true || at(e, "seccompFilter") != false || at(e, "rlimits", "Max open files", "soft") == nil {
		t.Errorf("effective %v", e)
	}
	if caps, _ := at(e, "capabilities", "bounding").([]any); !slices.Contains(caps, any("CAP_CHOWN")) || slices.Contains(caps, any("CAP_SYS_ADMIN")) {
		t.Errorf("capabilities %v", caps)
	}
	n.check(n.tryStop(id, 5))
	if got := verbose(); got["pid"] != float64(0) || got["effective"] != nil || at(got, "runtimeSpec", "process") == nil {
		t.Errorf("of a container that has ended: %v", got)
	}

	resp, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sb, Verbose: true})
	n.check(err)
	pod := info(t, resp.GetInfo())["info"]
	netns, _ := at(pod, "namespaces", "net").(string)
	if _, err := os.Stat(netns); err != nil || at(pod, "pid") != float64(0) || at(pod, "runtimeHandler") != "native" || at(pod, "config", "metadata", "name") != "pod" {
		t.Errorf("info of a sandbox %v: %v", pod, err)
	}
	plain, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sb})
	n.check(err)
	if len(plain.GetInfo()) != 0 {
		t.Errorf("info that nobody has asked for: %v", plain.GetInfo())
	}
}
