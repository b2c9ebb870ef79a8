package runtime_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

func TestStop(t *testing.T) {
	n := newNode(t)
	sb := n.run("stop")
	const deaf = "trap '' TERM; echo ready; while :; do sleep 3600 & wait; done"

	t.Run("the grace ends", func(t *testing.T) {
		id := n.launch(sb, shell("deaf", deaf))
		begin := time.Now()
		n.check(n.tryStop(id, 1))
		if st := n.status(id); st.GetExitCode() != 137 || st.GetReason() != "Error" || time.Since(begin) < time.Second {
			t.Errorf("%v after %v", st, time.Since(begin))
		}
	})
	t.Run("a shorter grace overtakes", func(t *testing.T) {
		id := n.launch(sb, shell("overtaken", deaf))
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := n.tryStop(id, 3600); err != nil {
				t.Error(err)
			}
		})
		n.check(n.tryStop(id, 0))
		wg.Wait()
		if st := n.status(id); st.GetExitCode() != 137 {
			t.Error(st)
		}
	})
	t.Run("the longest grace", func(t *testing.T) {
		id := n.launch(sb, shell("long", sleeper))
		n.check(n.tryStop(id, 1<<62)) // more than a time.Duration holds
		if st := n.status(id); st.GetExitCode() != 0 {
			t.Errorf("it was killed: %v", st)
		}
	})
	t.Run("a retry does not repeat the signal", func(t *testing.T) {
		c := shell("count", `i=0; trap 'i=$((i+1)); echo $i > /tmp/n' USR1; trap 'exit $i' USR2; touch /tmp/ready; while :; do sleep 3600 & wait; done`)
		c.StopSignal = cri.Signal_SIGNAL_SIGUSR1
		id := n.launch(sb, c)
		n.eventually("the traps", func() bool { return n.exec(id, "sh", "-c", "ls /tmp") != "" })
		stops := make(chan error, 3)
		for range cap(stops) {
			go func() { stops <- n.tryStop(id, 3600) }()
		}
		n.eventually("the signal", func() bool { return strings.Contains(n.exec(id, "ls", "/tmp"), "n") })
		n.check(n.executor.Kill(n.ctx, protocol.KillRequest{ID: ids.ContainerID(id), Signal: int(syscall.SIGUSR2)}))
		for range cap(stops) {
			n.check(<-stops)
		}
		if st := n.status(id); st.GetExitCode() != 1 {
			t.Errorf("%d signals", st.GetExitCode())
		}
	})
	t.Run("created", func(t *testing.T) {
		id := n.create(sb, shell("created", sleeper))
		n.check(n.tryStop(id, 30))
		if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 || st.GetStartedAt() != 0 {
			t.Error(st)
		}
		wantCode(t, n.tryStart(id), codes.FailedPrecondition)
		n.remove(id)
	})
	t.Run("program that is not there", func(t *testing.T) {
		c := shell("none", "")
		c.Command = []string{"/no/such/program"}
		stopped := n.create(sb, c)
		begin := time.Now()
		n.check(n.tryStop(stopped, 30))
		n.remove(stopped)
		if time.Since(begin) > patience()/4 {
			t.Errorf("took %v", time.Since(begin))
		}
		c.Metadata.Attempt++
		id := n.create(sb, c)
		if err := n.tryStart(id); err == nil || !strings.Contains(err.Error(), "/no/such/program") || strings.Count(err.Error(), id) != 1 {
			t.Errorf("start: %v", err)
		}
		if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128 || st.GetReason() != "StartError" ||
			!strings.Contains(st.GetMessage(), "/no/such/program") {
			t.Error(st)
		}
	})
	t.Run("removal of what runs", func(t *testing.T) {
		n.remove(n.launch(sb, shell("running", deaf)))
		n.remove(n.create(sb, shell("never", deaf)))
	})
	t.Run("while the worker is replaced", func(t *testing.T) {
		id, other := n.launch(sb, shell("w", sleeper)), n.launch(sb, shell("w2", deaf))
		hello, err := n.executor.Hello(n.ctx)
		n.check(err)
		n.check(syscall.Kill(hello.WorkerPID, syscall.SIGKILL)) // a process of this test's own executor
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := n.tryStop(other, 0); err != nil {
				t.Error(err)
			}
		})
		n.check(n.tryStop(id, 20))
		wg.Wait()
		if st := n.status(id); st.GetExitCode() != 0 {
			t.Error(st)
		}
		if st := n.status(other); st.GetExitCode() != 137 {
			t.Error(st)
		}
	})
}

// TestStopSandboxWhileCreating: a Create under way when its sandbox is removed leaves nothing.
func TestStopSandboxWhileCreating(t *testing.T) {
	n := newNode(t)
	for _, point := range []string{"runtime/container-create/persisted", "runtime/container-create/created"} {
		sb := n.run("removed")
		reached, release := make(chan struct{}), make(chan struct{})
		disarm := failpoint.Arm(point, func() error { close(reached); <-release; return nil })
		created := make(chan error, 1)
		go func() {
			_, err := n.tryCreate(sb, shell("late", sleeper))
			created <- err
		}()
		<-reached
		stopped := make(chan error, 1)
		go func() {
			_, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb})
			stopped <- err
		}()
		n.eventually("the sandbox to be stopped", func() bool {
			st, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sb})
			return err == nil && st.GetStatus().GetState() == cri.PodSandboxState_SANDBOX_NOTREADY
		})
		disarm()
		close(release)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := <-created; err != nil && point == "runtime/container-create/created" {
			t.Error(err)
		}
		if held, err := n.executor.List(n.ctx); err != nil || len(held) != 0 {
			t.Errorf("the executor holds %v, %v", held, err)
		}
		if list, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{}); err != nil || len(list.GetContainers()) != 0 {
			t.Errorf("left: %v, %v", list, err)
		}
	}
}

// TestPodCgroup: the cgroup that the runtime makes for a pod has the pod's limits, and goes with it.
func TestPodCgroup(t *testing.T) {
	n := newNode(t)
	cfg := n.sandboxConfig("limited")
	cfg.Linux.CgroupParent = n.cgroupRoot + "/mine"
	cfg.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
	cfg.Linux.Overhead = &cri.LinuxContainerResources{MemoryLimitInBytes: 16 << 20}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	read := func() (limit int) {
		for _, path := range []string{"/sys/fs/cgroup/memory" + cfg.Linux.CgroupParent + "/memory.limit_in_bytes", "/sys/fs/cgroup" + cfg.Linux.CgroupParent + "/memory.max"} {
			if raw, err := os.ReadFile(path); err == nil {
				limit, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
			}
		}
		return limit
	}
	if got := read(); got != 80<<20 {
		t.Errorf("memory limit %d", got)
	}
	n.launch(resp.GetPodSandboxId(), shell("c", sleeper))
	n.removeSandbox(resp.GetPodSandboxId())
	if left, _ := filepath.Glob("/sys/fs/cgroup/*" + cfg.Linux.CgroupParent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSliceAsParent: the name of a slice stands for the cgroup that systemd has for it.
func TestSliceAsParent(t *testing.T) {
	n := newNode(t)
	host, err := cgroup.Detect()
	n.check(err)
	top := strings.TrimPrefix(n.cgroupRoot, "/")
	t.Cleanup(func() { n.check(host.RemoveTree("/" + top + ".slice")) }) // nobody made it, so nobody removes it
	cfg := n.sandboxConfig("slice")
	cfg.Linux.CgroupParent = top + "-pod1.slice"
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	id := n.launch(resp.GetPodSandboxId(), shell("c", sleeper))
	path := "/" + top + ".slice/" + top + "-pod1.slice"
	if pids, err := host.Processes(path + "/" + id); err != nil || len(pids) == 0 {
		t.Errorf("the container's cgroup holds %v, %v", pids, err)
	}
	n.removeSandbox(resp.GetPodSandboxId())
	if left, err := host.Exists(path); err != nil || left {
		t.Errorf("%s is left: %v", path, err)
	}
	cfg.Linux.CgroupParent = "pods/pod1"
	_, err = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	wantCode(t, err, codes.InvalidArgument, "cgroup_parent")
}
