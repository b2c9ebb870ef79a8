package executor_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

func ptr[T any](v T) *T { return &v }

func cgroupV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

const mib = 1 << 20

// limited gives a container limits, and device rules that forbid all but the usual ones.
func limited(s *specs.Spec) {
	s.Linux.Resources = &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		CPU:     &specs.LinuxCPU{Shares: ptr(uint64(512)), Quota: ptr(int64(50000)), Period: ptr(uint64(100000))},
		Memory:  &specs.LinuxMemory{Limit: ptr(int64(64 * mib))},
		Pids:    &specs.LinuxPids{Limit: ptr(int64(50))},
	}
	caps := []string{"CAP_MKNOD"}
	s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
}

// limits returns the values of a container's cgroup, by short names that both versions share.
func (n *node) limits(id string) map[string]string {
	n.t.Helper()
	got := map[string]string{}
	files := map[string]string{"shares": "cpu/cpu.shares", "quota": "cpu/cpu.cfs_quota_us", "period": "cpu/cpu.cfs_period_us", "memory": "memory/memory.limit_in_bytes",
		"memsw": "memory/memory.memsw.limit_in_bytes", "pids": "pids/pids.max", "cpus": "cpuset/cpuset.cpus"}
	if cgroupV2() {
		files = map[string]string{"shares": "/cpu.weight", "quota": "/cpu.max", "memory": "/memory.max", "memsw": "/memory.swap.max", "pids": "/pids.max",
			"cpus": "/cpuset.cpus", "high": "/memory.high"}
	}
	for name, file := range files {
		controller, file, _ := strings.Cut(file, "/")
		got[name] = strings.TrimSpace(readFile(filepath.Join("/sys/fs/cgroup", controller, n.cgroup, id, file)))
	}
	if quota, period, ok := strings.Cut(got["quota"], " "); ok {
		got["quota"], got["period"] = quota, period
	}
	return got
}

func (n *node) checkLimits(id string, want map[string]string) {
	n.t.Helper()
	got := n.limits(id)
	for name, value := range want {
		if got[name] != value {
			n.t.Errorf("%s of %s is %q, want %q", name, id, got[name], value)
		}
	}
}

func (n *node) update(id ids.ContainerID, r specs.LinuxResources) {
	n.t.Helper()
	if err := n.c.Update(n.ctx(), protocol.UpdateRequest{ID: id, Resources: &r}); err != nil {
		n.t.Errorf("update of %s: %v", id, err)
	}
}

func weight(v1, v2 string) string {
	if cgroupV2() {
		return v2
	}
	return v1
}

func TestUpdate(t *testing.T) {
	n := newNode(t)
	pid := n.start(n.bundle("a", limited, "sleep", "1000"))
	memory := func(mb int) string { return fmt.Sprint(mb * mib) }
	n.checkLimits("a", map[string]string{"memory": memory(64), "pids": "50", "quota": "50000", "period": "100000"})
	n.update("a", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(int64(128 * mib))}})
	n.update("a", specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr(int64(30000))}})
	n.checkLimits("a", map[string]string{"memory": memory(128), "pids": "50", "quota": "30000", "period": "100000", "shares": weight("512", n.limits("a")["shares"])})
	n.killWorker() // the next one knows them
	n.update("a", specs.LinuxResources{CPU: &specs.LinuxCPU{Period: ptr(uint64(60000)), Shares: ptr(uint64(1024))}, Pids: &specs.LinuxPids{Limit: ptr(int64(-1))}})
	n.checkLimits("a", map[string]string{"memory": memory(128), "pids": "max", "quota": "30000", "period": "60000", "shares": weight("1024", n.limits("a")["shares"])})
	if n.limits("a")["memsw"] != "" { // the kernel accounts for swap: up, down, and without a limit, whichever comes first
		for _, mb := range []int64{256, 32, 512, -1, 64} {
			limit := mb
			if mb > 0 {
				limit *= mib
			}
			n.update("a", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit, Swap: &limit}})
			if mb > 0 {
				n.checkLimits("a", map[string]string{"memory": memory(int(mb)), "memsw": weight(memory(int(mb)), "0")})
			}
		}
		n.update("a", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(int64(96 * mib))}})
		n.checkLimits("a", map[string]string{"memory": memory(96), "memsw": weight(memory(96), "0")})
	}
	if cgroupV2() {
		n.update("a", specs.LinuxResources{Unified: map[string]string{"memory.high": memory(48)}})
		n.checkLimits("a", map[string]string{"high": memory(48)})
	}
	// The device rules are still there.
	out, resp := n.execOutput("a", "sh", "-c", "dd if=/dev/zero of=/dev/null count=1 bs=1 2>/dev/null && echo allowed; busybox mknod /tmp/loop b 7 0 && cat /tmp/loop 2>&1")
	if !strings.HasPrefix(out, "allowed\n") || !strings.Contains(out, "not permitted") || resp == 0 {
		t.Errorf("devices after an update: %q (code %d), want /dev/zero allowed, and a loop device not", out, resp)
	}
	if s, err := n.c.State(n.ctx(), "a"); err != nil || s.PID != pid || s.Phase != protocol.Running {
		t.Errorf("state %+v %v", s, err)
	}
}

// execOutput runs a command in a container.
func (n *node) execOutput(id ids.ContainerID, args ...string) (out string, code int) {
	n.t.Helper()
	path := filepath.Join(n.dir, "out")
	f, err := os.Create(path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	p := process(args...)
	p.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_MKNOD"}, Effective: []string{"CAP_MKNOD"}, Permitted: []string{"CAP_MKNOD"}}
	resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: id, ExecID: "out", Process: p, Stdout: true}, f)
	if err != nil {
		n.t.Fatal("exec: ", err)
	}
	return readFile(path), resp.Exit.Code
}

// After an error the old values hold.
func TestUpdateIsAllOrNothing(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", limited, "sleep", "1000"))
	before := n.limits("a")
	good := func() *specs.LinuxResources {
		return &specs.LinuxResources{
			CPU:    &specs.LinuxCPU{Shares: ptr(uint64(1024)), Quota: ptr(int64(20000)), Period: ptr(uint64(40000))},
			Memory: &specs.LinuxMemory{Limit: ptr(int64(128 * mib))},
			Pids:   &specs.LinuxPids{Limit: ptr(int64(10))},
		}
	}
	for name, spoil := range map[string]func(*specs.LinuxResources){
		"no such processor":      func(r *specs.LinuxResources) { r.CPU.Cpus = "4000" },
		"no cpuset":              func(r *specs.LinuxResources) { r.CPU.Cpus = "x" },
		"memory node":            func(r *specs.LinuxResources) { r.CPU.Mems = "4000" },
		"period too short":       func(r *specs.LinuxResources) { r.CPU.Period = ptr(uint64(1)) },
		"burst beyond the quota": func(r *specs.LinuxResources) { r.CPU.Burst = ptr(uint64(30000)) },
		"no such huge page": func(r *specs.LinuxResources) {
			r.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "3MB", Limit: 1}}
		},
		"devices": func(r *specs.LinuxResources) { r.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}} },
	} {
		r := good()
		spoil(r)
		if err := n.c.Update(n.ctx(), protocol.UpdateRequest{ID: "a", Resources: r}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
		if after := n.limits("a"); !maps.Equal(after, before) {
			t.Errorf("%s: afterwards %v, want %v", name, after, before)
		}
	}
	for name, req := range map[string]protocol.UpdateRequest{"none": {ID: "a"}} {
		if err := n.c.Update(n.ctx(), req); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	if err := n.c.Update(n.ctx(), protocol.UpdateRequest{ID: "nobody", Resources: good()}); !errdefs.IsNotFound(err) {
		t.Errorf("no container: %v, want NotFound", err)
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
	if err := n.c.Update(n.ctx(), protocol.UpdateRequest{ID: "a", Resources: good()}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("after the exit: %v, want FailedPrecondition", err)
	}
}

// With the worker killed in the middle of an update nothing has changed, or, when it is repeated, all.
func TestWorkerDiesInUpdate(t *testing.T) {
	for _, point := range []string{"updating", "updated"} {
		t.Run(point, func(t *testing.T) {
			t.Setenv(failpoint.EnvVar, "executor/worker/"+point+"=kill") // armed in the first worker only
			n := newNode(t)
			n.start(n.bundle("a", limited, "sleep", "1000"))
			before, h := n.limits("a"), n.hello()
			req := protocol.UpdateRequest{ID: "a", Resources: &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr(int64(10))}, Memory: &specs.LinuxMemory{Limit: ptr(int64(128 * mib))}}}
			if err := n.callOnce(protocol.MethodUpdate, req); !protocol.IsLost(err) {
				t.Errorf("update: %v, want a lost connection", err)
			}
			if n.hello().WorkerPID == h.WorkerPID {
				t.Error("the worker was not killed")
			}
			if after := n.limits("a"); !maps.Equal(after, before) {
				t.Errorf("afterwards %v, want %v", after, before)
			}
			if err := n.c.Update(n.ctx(), req); err != nil {
				t.Error("again: ", err)
			}
			n.checkLimits("a", map[string]string{"pids": "10", "memory": fmt.Sprint(128 * mib)})
		})
	}
}

// callOnce makes a call that is not repeated when the connection is lost.
func (n *node) callOnce(method string, req any) error {
	n.t.Helper()
	conn, err := net.Dial("unix", n.cfg.Socket)
	if err != nil {
		n.t.Fatal(err)
	}
	c := protocol.NewConn(n.ctx(), conn.(*net.UnixConn), protocol.ConnConfig{})
	defer c.Close()
	if err := c.Call(n.ctx(), protocol.Outgoing{Method: protocol.MethodHello, Body: protocol.HelloRequest{MinVersion: 1, MaxVersion: protocol.Version}}, nil); err != nil {
		n.t.Fatal(err)
	}
	return c.Call(n.ctx(), protocol.Outgoing{Method: method, Body: req}, nil)
}
