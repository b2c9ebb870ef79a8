package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/proc"
)

// pidMode gives a container's configuration a mode of its PID namespace.
func pidMode(cfg *cri.ContainerConfig, mode cri.NamespaceMode, target string) *cri.ContainerConfig {
	o := cfg.Linux.SecurityContext.NamespaceOptions
	o.Pid, o.TargetId = mode, target
	return cfg
}

func (n *node) runPID(name string, mode cri.NamespaceMode) string {
	n.Helper()
	cfg := n.sandboxConfig(name)
	cfg.Linux.SecurityContext.NamespaceOptions.Pid = mode
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	return resp.GetPodSandboxId()
}

// inits lists the pods' inits that the executor holds, by the sandboxes' ids.
func (n *node) inits() map[string]protocol.ContainerState {
	n.Helper()
	held, err := n.executor.List(n.ctx)
	n.check(err)
	found := map[string]protocol.ContainerState{}
	for _, s := range held {
		if s.Kind == protocol.KindPodInit {
			found[string(s.ID)] = s
		}
	}
	return found
}

const showPIDNS = "readlink /proc/self/ns/pid; cat /proc/1/comm"

func TestPIDNamespaces(t *testing.T) {
	n := newNode(t)
	shared := n.runPID("shared", cri.NamespaceMode_POD)
	if len(n.inits()) != 0 {
		t.Error("a sandbox without containers has an init")
	}
	a := n.launch(shared, pidMode(shell("a", sleeper), cri.NamespaceMode_POD, ""))
	b := n.launch(shared, pidMode(shell("b", sleeper), cri.NamespaceMode_POD, ""))
	own := n.launch(shared, pidMode(shell("own", sleeper), cri.NamespaceMode_CONTAINER, ""))
	show := func(id string) string { return n.exec(id, "sh", "-c", showPIDNS) }
	if show(a) != show(b) || show(a) == show(own) {
		t.Errorf("a has %q, b %q, own %q", show(a), show(b), show(own))
	}
	if inits := n.inits(); len(inits) != 1 || inits[shared].Phase != protocol.Running {
		t.Errorf("inits %v", inits)
	}
	if comm := strings.Fields(show(a))[1]; comm == "sh" {
		t.Error("pid 1 of the shared namespace is a container's program")
	}

	t.Run("what outlives a container's first process ends with it", func(t *testing.T) {
		const sleepers = "grep -l '^Name:.sleep' /proc/[0-9]*/status | wc -l"
		before := n.exec(a, "sh", "-c", sleepers)
		out := n.output(shared, pidMode(shell("leaves", "sleep 3600 & sleep 3600 & echo gone"), cri.NamespaceMode_POD, ""))
		if out != "gone" {
			t.Error(out)
		}
		if after := n.exec(a, "sh", "-c", sleepers); after != before {
			t.Errorf("%s sleep in the pod, and before %s", after, before)
		}
	})
	t.Run("orphans are reaped", func(t *testing.T) {
		n.exec(a, "sh", "-c", "(sleep 0.01 &) ; exit 0")
		n.eventually("no zombie", func() bool { return n.exec(a, "sh", "-c", "grep -l '^State:.Z' /proc/[0-9]*/status || true") == "" })
	})
	t.Run("target", func(t *testing.T) {
		id := n.launch(shared, pidMode(shell("debug", sleeper), cri.NamespaceMode_TARGET, own))
		if show(id) != show(own) {
			t.Errorf("%q, the target has %q", show(id), show(own))
		}
		other := n.run("other")
		stranger := n.launch(other, shell("stranger", sleeper))
		created := n.create(shared, shell("created", sleeper))
		for name, c := range map[string]struct {
			target string
			code   codes.Code
			word   string
		}{
			"unknown":             {strings.Repeat("0", 64), codes.InvalidArgument, "target_id"},
			"another sandbox's":   {stranger, codes.InvalidArgument, "target_id"},
			"of a shared one":     {a, codes.InvalidArgument, "CONTAINER"},
			"a target of its own": {id, codes.InvalidArgument, "CONTAINER"},
			"not started":         {created, codes.FailedPrecondition, "CREATED"},
			"none":                {"", codes.InvalidArgument, "target_id"},
		} {
			_, err := n.tryCreate(shared, pidMode(shell("refused", sleeper), cri.NamespaceMode_TARGET, c.target))
			if t.Run(name, func(t *testing.T) { wantCode(t, err, c.code, c.word) }); err == nil {
				t.Fatal("it was made")
			}
		}
		n.check(n.tryStop(own, 10))
		n.wait(id) // its namespace has gone
		_, err := n.tryCreate(shared, pidMode(shell("late", sleeper), cri.NamespaceMode_TARGET, own))
		wantCode(t, err, codes.FailedPrecondition, "EXITED")
		n.remove(id)
		n.remove(created)
		n.removeSandbox(other)
	})
	t.Run("the node's only for sandboxes that have it", func(t *testing.T) {
		_, err := n.tryCreate(shared, pidMode(shell("node", "true"), cri.NamespaceMode_NODE, ""))
		wantCode(t, err, codes.InvalidArgument, "pid", "NODE")
		host := n.runPID("host", cri.NamespaceMode_NODE)
		link, err := os.Readlink("/proc/self/ns/pid")
		n.check(err)
		for _, mode := range []cri.NamespaceMode{cri.NamespaceMode_NODE, cri.NamespaceMode_POD} {
			if out := n.output(host, pidMode(shell("node", "sleep 3600 & readlink /proc/self/ns/pid"), mode, "")); out != link {
				t.Errorf("%s: %q, the node's is %q", mode, out, link)
			}
		}
		n.removeSandbox(host)
	})

	n.check(stopSandbox(n, shared))
	if inits := n.inits(); len(inits) != 0 {
		t.Errorf("after the stop there is %v", inits)
	}
	n.removeSandbox(shared)
}

func stopSandbox(n *node, id string) error {
	_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

func TestInitDies(t *testing.T) {
	n := newNode(t)
	sb := n.runPID("dies", cri.NamespaceMode_POD)
	joined := n.launch(sb, pidMode(shell("joined", sleeper), cri.NamespaceMode_POD, ""))
	apart := n.launch(sb, pidMode(shell("apart", sleeper), cri.NamespaceMode_CONTAINER, ""))
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	events, err := n.rt.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	n.check(err)
	n.check(syscall.Kill(n.inits()[sb].PID, syscall.SIGKILL)) // a process of this test's own executor
	stopped := map[string]bool{}
	for !stopped[sb] {
		e, err := events.Recv()
		n.check(err)
		if e.GetContainerEventType() == cri.ContainerEventType_CONTAINER_STOPPED_EVENT {
			stopped[e.GetContainerId()] = true
		}
	}
	if !stopped[joined] || !stopped[apart] {
		t.Errorf("stopped are %v", stopped)
	}
	if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
		t.Error(st)
	}
	for _, id := range []string{joined, apart} {
		if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
			t.Error(st)
		}
	}
	n.wantAddresses(0)
	n.check(stopSandbox(n, sb))
	if inits := n.inits(); len(inits) != 0 {
		t.Errorf("there is %v", inits)
	}
	n.removeSandbox(sb)
}

func TestInitAcrossRestarts(t *testing.T) {
	n := newNode(t)
	sb := n.runPID("kept", cri.NamespaceMode_POD)
	id := n.launch(sb, pidMode(shell("kept", sleeper), cri.NamespaceMode_POD, ""))
	init := n.inits()[sb]
	n.restart()
	if got := n.inits()[sb]; got.PID != init.PID || got.Phase != protocol.Running {
		t.Errorf("the init is %+v, and was %+v", got, init)
	}
	apart := n.launch(sb, shell("apart", sleeper))
	joins := n.launch(sb, pidMode(shell("joins", sleeper), cri.NamespaceMode_POD, ""))
	if a, b := n.exec(id, "sh", "-c", showPIDNS), n.exec(joins, "sh", "-c", showPIDNS); a != b {
		t.Errorf("%q after the restart, %q before", b, a)
	}

	// It dies while nobody looks.
	n.stopServing()
	n.check(syscall.Kill(init.PID, syscall.SIGKILL))
	n.awaitExecutor(sb, protocol.Exited)
	n.closeAll()
	n.start()
	n.eventually("the sandbox to be not ready", func() bool { return n.sandboxStatus(sb).GetState() == cri.PodSandboxState_SANDBOX_NOTREADY })
	n.eventually("its containers to have ended", func() bool {
		return n.status(id).GetState() == cri.ContainerState_CONTAINER_EXITED && n.status(joins).GetState() == cri.ContainerState_CONTAINER_EXITED &&
			n.status(apart).GetState() == cri.ContainerState_CONTAINER_EXITED
	})
	n.removeSandbox(sb)
	if inits := n.inits(); len(inits) != 0 {
		t.Errorf("there is %v", inits)
	}

	// An init whose sandbox is in no record.
	pin := filepath.Join(n.dir, "pin")
	n.check(os.WriteFile(pin, nil, 0o600))
	_, err := n.executor.Init(n.ctx, protocol.InitRequest{ID: "stray", CgroupPath: n.cgroupRoot + "/stray", Pin: pin})
	n.check(err)
	n.restart()
	if inits := n.inits(); len(inits) != 0 {
		t.Errorf("a stray init is left: %v", inits)
	}
	n.check(mount.UnmountBelow(pin))
}

func TestHalfMadeInit(t *testing.T) {
	for _, point := range []string{"runtime/sandbox-init/prepared", "runtime/sandbox-init/made"} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			n := newNode(t)
			sb := n.runPID("half", cri.NamespaceMode_POD)
			rt := n.rt
			n.crash(point, func() {
				_, _ = rt.CreateContainer(n.ctx, &cri.CreateContainerRequest{PodSandboxId: sb, Config: pidMode(shell("half", sleeper), cri.NamespaceMode_POD, "")})
			})
			if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_READY {
				t.Error(st)
			}
			id := n.launch(sb, pidMode(shell("half", sleeper), cri.NamespaceMode_POD, ""))
			n.exec(id, "true")
			n.removeSandbox(sb)
			if inits := n.inits(); len(inits) != 0 {
				t.Errorf("there is %v", inits)
			}
		})
	}
}

// TestPIDNamespacesOfUsers: in a pod with a user namespace, the shared PID namespace belongs to it.
func TestPIDNamespacesOfUsers(t *testing.T) {
	n := userNode(t)
	if n == nil {
		return
	}
	pod := n.userPod("users")
	pod.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
	n.check(err)
	sb := resp.GetPodSandboxId()
	a := n.launch(sb, pidMode(userShell("a", sleeper), cri.NamespaceMode_POD, ""))
	b := n.launch(sb, pidMode(userShell("b", sleeper), cri.NamespaceMode_POD, ""))
	own := n.launch(sb, pidMode(userShell("own", sleeper), cri.NamespaceMode_CONTAINER, ""))
	joined := n.launch(sb, pidMode(userShell("joined", sleeper), cri.NamespaceMode_TARGET, own))
	show := func(id string) string { return n.exec(id, "sh", "-c", showPIDNS) }
	if show(a) != show(b) || show(own) != show(joined) || show(a) == show(own) {
		t.Errorf("a %q, b %q, own %q, joined %q", show(a), show(b), show(own), show(joined))
	}
	// Its root rules the processes of the namespace, those of the other container too.
	n.exec(a, "sh", "-c", "kill -0 $(grep -l '^Name:.sleep' /proc/[0-9]*/status | cut -d/ -f3)")
	n.removeSandbox(sb)
	if inits := n.inits(); len(inits) != 0 {
		t.Errorf("there is %v", inits)
	}
}

// TestInitAndReboot: a reboot takes the init; the sandbox is not ready, and can be removed.
func TestInitAndReboot(t *testing.T) {
	n := newNode(t)
	sb := n.runPID("boot", cri.NamespaceMode_POD)
	id := n.launch(sb, pidMode(shell("c", sleeper), cri.NamespaceMode_POD, ""))
	n.stopServing()
	n.check(n.executor.Shutdown(n.ctx, protocol.ShutdownRequest{Kill: true}))
	n.check(os.RemoveAll(filepath.Join(n.dir, "run/executor")))
	for _, table := range []string{"containers", "sandboxes"} {
		n.editTable(table, func(rec map[string]any) { rec["bootID"] = "another boot" })
	}
	n.closeAll()
	n.start()
	if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
		t.Error(st)
	}
	if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 255 {
		t.Error(st)
	}
	n.wantAddresses(0)
	n.removeSandbox(sb)
}

// TestInitLost: an init that the executor has lost, with its directory, ends with its sandbox, which is not ready.
func TestInitLost(t *testing.T) {
	n := newNode(t)
	sb := n.runPID("lost", cri.NamespaceMode_POD)
	n.launch(sb, pidMode(shell("c", sleeper), cri.NamespaceMode_POD, ""))
	init := n.inits()[sb].PID
	stat, err := proc.ReadStat(init)
	n.check(err)
	host, err := cgroup.Detect()
	n.check(err)
	n.stopServing()
	// Keeper and worker start each other anew: they are gone when their cgroup, which is this test's own, is empty.
	n.eventually("the executor to be gone", func() bool {
		pids, err := host.Processes(n.cgroupRoot + "/executor")
		n.check(err)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		return len(pids) == 0
	})
	n.closeAll()
	n.check(os.RemoveAll(filepath.Join(n.dir, "run/executor")))
	n.start()
	n.eventually("the sandbox to be not ready", func() bool { return n.sandboxStatus(sb).GetState() == cri.PodSandboxState_SANDBOX_NOTREADY })
	n.check(stopSandbox(n, sb))
	n.eventually("the init to be gone", func() bool { return !proc.Alive(init, stat.StartTime) })
	n.removeSandbox(sb)
}
