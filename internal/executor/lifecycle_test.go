package executor_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

func TestLifecycle(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "echo out; echo err >&2; sleep 1000")
	created, err := n.c.Create(n.ctx(), req)
	if err != nil {
		t.Fatal(err)
	}
	again, err := n.c.Create(n.ctx(), req)
	if err != nil || again != created {
		t.Errorf("Create again: %+v %v, want %+v", again, err, created)
	}
	other := req
	other.Bundle += "x"
	if _, err := n.c.Create(n.ctx(), other); !errdefs.IsAlreadyExists(err) {
		t.Errorf("Create with another bundle: %v, want AlreadyExists", err)
	}
	s, err := n.c.State(n.ctx(), "a")
	if err != nil || s.Phase != protocol.Created || s.PID != created.PID || s.PID == 0 {
		t.Errorf("state after Create: %+v %v", s, err)
	}
	started, err := n.c.Start(n.ctx(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := n.c.Start(n.ctx(), "a"); err != nil || !again.StartedAt.Equal(started.StartedAt) {
		t.Errorf("Start again: %+v %v, want %+v", again, err, started)
	}
	if err := n.c.Delete(n.ctx(), "a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Delete while it runs: %v, want FailedPrecondition", err)
	}
	if err := n.c.Shutdown(n.ctx(), protocol.ShutdownRequest{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Shutdown while it runs: %v, want FailedPrecondition", err)
	}
	eventually(t, "two lines in the log", func() bool { return len(readLog(t, req.LogPath)) == 2 })
	n.kill("a", unix.SIGTERM) // the first process of a PID namespace ignores what it does not handle
	n.kill("a", unix.SIGKILL)
	if e := n.exit("a"); e.Code != 137 || e.Reason != "" || e.OOMKilled {
		t.Errorf("exit %+v, want 137", e)
	}
	n.kill("a", unix.SIGKILL) // no error
	if _, err := n.c.Start(n.ctx(), "a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Start after the exit: %v, want FailedPrecondition", err)
	}
	for range 2 {
		if err := n.c.Delete(n.ctx(), "a"); err != nil {
			t.Error("Delete: ", err)
		}
	}
	if _, err := n.c.State(n.ctx(), "a"); !errdefs.IsNotFound(err) {
		t.Errorf("State after Delete: %v, want NotFound", err)
	}
}

func TestExitCodes(t *testing.T) {
	n := newNode(t)
	for _, tc := range []struct {
		name   ids.ContainerID
		script string
		want   int
	}{{"zero", "exit 0", 0}, {"seven", "exit 7", 7}, {"big", "exit 255", 255}, {"signal", "kill -9 $$; kill -TERM 0; exit 3", 3}} {
		if e := n.run(n.bundle(tc.name, nil, "sh", "-c", tc.script)); e.Code != tc.want || e.Reason != "" {
			t.Errorf("%s: exit %+v, want %d", tc.name, e, tc.want)
		}
	}
}

func TestStartErrors(t *testing.T) {
	n := newNode(t)
	// Who watches sees none of them run: a pod of such a container would be ready for a moment.
	ctx, cancel := context.WithCancel(n.ctx())
	synced, watched := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(watched)
		watched <- n.c.Events(ctx, func(ev protocol.Event) {
			if ev.Synced {
				close(synced)
			}
			if ev.Container != nil && ev.Container.Phase == protocol.Running {
				t.Errorf("%s is shown as running", ev.Container.ID)
			}
		})
	}()
	defer func() {
		cancel()
		<-watched
	}()
	select {
	case <-synced:
	case err := <-watched:
		t.Fatal("events: ", err)
	}
	for id, tc := range map[ids.ContainerID]struct{ program, want string }{
		"missing":     {"no-such-program", "executable file not found in $PATH"},
		"missing-2":   {"/no/program", "/no/program"},
		"on-a-mount":  {"/tmp/program", "/tmp/program"},
		"not-exec":    {"/etc", "/etc"},
		"interpreter": {"/bin/badscript", "no such file or directory"},
	} {
		native, oci := n.bundle(id, nil, tc.program), n.oci(id+".oci", nil, tc.program)
		for _, req := range []protocol.CreateRequest{native, oci} {
			_, err := n.c.Create(n.ctx(), req)
			if req.Runtime != nil && id == "on-a-mount" { // what is on it only the runtime knows
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: Create: %v, want an error with %q", req.ID, err, tc.want)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: Create: %v", req.ID, err)
			}
			for range 2 { // the second time it says the same
				if _, err := n.c.Start(n.ctx(), req.ID); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: Start: %v, want an error with %q", req.ID, err, tc.want)
				}
			}
			e := n.exit(req.ID)
			if e.Code != 128 || e.Reason != protocol.ReasonStartError || !strings.Contains(e.Message, tc.want) {
				t.Errorf("%s: exit %+v, want 128 StartError %q", req.ID, e, tc.want)
			}
			if err := n.c.Delete(n.ctx(), req.ID); err != nil {
				t.Errorf("%s: Delete: %v", req.ID, err)
			}
		}
	}
	n.checkRuncForgot()
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/x", Source: "/no/such/source", Options: []string{"bind"}})
	}, "true")
	if _, err := n.c.Create(n.ctx(), req); err == nil {
		t.Fatal("Create with a mount of nothing succeeds")
	}
	if _, err := n.c.State(n.ctx(), "a"); !errdefs.IsNotFound(err) {
		t.Errorf("State: %v, want NotFound", err)
	}
	for _, dir := range cgroupDirs(n.cgroup + "/a") {
		t.Error("cgroup left: ", dir)
	}
	left, _ := filepath.Glob(filepath.Join(n.cfg.Dir, "*", "a"))
	if len(left) > 0 {
		t.Error("left behind: ", left)
	}
	for name, bad := range map[string]protocol.CreateRequest{
		"id":       {ID: "../x", Bundle: req.Bundle},
		"relative": {ID: "b", Bundle: "x"},
		"nothing":  {ID: "b", Bundle: "/no/such/bundle"},
	} {
		if _, err := n.c.Create(n.ctx(), bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
}

// TestOthersInTheCgroup: a process that is in the container's cgroup already is nobody's to kill.
func TestOthersInTheCgroup(t *testing.T) {
	n := newNode(t)
	root := "/sys/fs/cgroup/pids"
	if cgroupV2() {
		root = "/sys/fs/cgroup"
	}
	dir := filepath.Join(root, n.cgroup, "a")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(other.Process.Pid)), 0); err != nil {
		t.Error(err)
	}
	pin := filepath.Join(n.dir, "pin")
	if err := os.WriteFile(pin, nil, 0o600); err != nil {
		t.Error(err)
	}
	if _, err := n.c.Create(n.ctx(), n.bundle("a", nil, "true")); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Create: %v, want FailedPrecondition", err)
	}
	if _, err := n.c.Init(n.ctx(), protocol.InitRequest{ID: "a", CgroupPath: n.cgroup + "/a", Pin: pin}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Init: %v, want FailedPrecondition", err)
	}
	if err := other.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	other.Wait() // by a signal, as is looked at
	if got := other.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != syscall.SIGUSR1 {
		t.Errorf("the process that was there was ended by %v", got)
	}
	if err := os.Remove(dir); err != nil {
		t.Error(err)
	}
}

func TestOOMKilled(t *testing.T) {
	n := newNode(t)
	limit := int64(48 << 20)
	e := n.run(n.bundle("a", func(s *specs.Spec) { s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit} },
		"sh", "-c", "dd if=/dev/zero of=/dev/null bs=256M count=1"))
	if !e.OOMKilled {
		t.Errorf("exit %+v, want OOMKilled", e)
	}
}

func TestKillAll(t *testing.T) {
	n := newNode(t)
	// Without a PID namespace of its own, what the first process leaves behind lives on.
	req := n.bundle("a", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, "sh", "-c", "sleep 1000 & echo $!; exit 3")
	n.start(req)
	if e := n.exit("a"); e.Code != 3 {
		t.Errorf("exit %+v, want 3", e)
	}
	pid := texts(readLog(t, req.LogPath))[0]
	if err := n.c.Kill(n.ctx(), protocol.KillRequest{ID: "a", Signal: int(unix.SIGKILL), All: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan is reaped", func() bool { _, err := os.Stat("/proc/" + pid); return err != nil })
}

func TestEventsAreLevelTriggered(t *testing.T) {
	n := newNode(t)
	n.run(n.bundle("a", nil, "true"))
	n.start(n.bundle("b", nil, "sleep", "1000"))
	// A subscriber that comes late learns the same.
	if s := n.awaitState("a", func(protocol.ContainerState) bool { return true }); s.Phase != protocol.Exited {
		t.Errorf("a: %+v, want Exited first", s)
	}
	if s := n.awaitState("b", func(protocol.ContainerState) bool { return true }); s.Phase != protocol.Running || s.PID == 0 {
		t.Errorf("b: %+v, want Running first", s)
	}
}
