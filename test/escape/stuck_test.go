package escape

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// stuck is a container in which a command never gets as far as to run, until it is released.
type stuck struct {
	*container
	cmd     []string
	release func()
}

// stuckWays are how a container makes that so.
var stuckWays = map[string]func(p *pod) stuck{
	// Whoever appears in its PID namespace is stopped, also what starts him.
	"stopped": func(p *pod) stuck {
		c := p.launch(able(command("/attack", "stop"), "KILL"))
		c.says("ready")
		return stuck{c, []string{"/bin/true"}, func() {}}
	},
	"frozen": func(p *pod) stuck {
		c := p.launch(shell(sleeper))
		return stuck{c, []string{"/bin/true"}, c.freeze()}
	},
	"program in PATH hangs": func(p *pod) stuck {
		fs := harness.MountHanging(p, filepath.Join(p.place(), "hang"))
		cfg := mounted(shell("PATH=/bin; "+sleeper), fs.Dir, "/hang")
		cfg.Envs = []*cri.KeyValue{{Key: "PATH", Value: []byte("/bin:/hang")}}
		return stuck{p.launch(cfg), []string{"hang"}, fs.Release}
	},
	"program hangs": func(p *pod) stuck {
		fs := harness.MountHanging(p, filepath.Join(p.place(), "hang"))
		return stuck{p.launch(mounted(shell(sleeper), fs.Dir, "/hang")), []string{"/hang/hang"}, fs.Release}
	},
	"working directory hangs": func(p *pod) stuck {
		fs := harness.MountHanging(p, filepath.Join(p.place(), "hang"))
		cfg := mounted(shell("cd /; rmdir /work && ln -s /hang/hang /work; echo ready; "+sleeper), fs.Dir, "/hang")
		cfg.WorkingDir = "/work"
		c := p.launch(cfg)
		c.says("ready")
		return stuck{c, []string{"/bin/true"}, fs.Release}
	},
}

// stopAll stops everybody else, for ever.
func stopAll([]string) error {
	fmt.Println("ready")
	for {
		_ = unix.Kill(-1, unix.SIGSTOP)
	}
}

// freeze freezes the container's cgroup, of version 1 or 2, and returns what thaws it, at the latest at the test's end.
func (c *container) freeze() (thaw func()) {
	c.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.process()))
	c.check(err)
	file, on, off := "", "FROZEN", "THAWED"
	for line := range strings.Lines(string(raw)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case part[1] == "freezer":
			file = filepath.Join("/sys/fs/cgroup/freezer", part[2], "freezer.state")
		case part[1] == "" && file == "":
			file, on, off = filepath.Join("/sys/fs/cgroup", part[2], "cgroup.freeze"), "1", "0"
		}
		if file != "" && on == "FROZEN" {
			break
		}
	}
	write := func(state string) error { return os.WriteFile(file, []byte(state), 0) }
	c.check(write(on))
	thaw = sync.OnceFunc(func() {
		if err := write(off); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.Error(err)
		}
	})
	c.Cleanup(thaw)
	return thaw
}

// calls is how many commands are asked for at once. runc takes a process of ten megabytes for each, so it gets fewer.
func (n *node) calls() int {
	switch {
	case n.engine == "runc":
		return rounds(100)
	case short():
		return 200
	}
	return 5000
}

// TestStuckStarts: thousands of commands are asked for in a container in which none gets as far as to run: its processes are stopped, or frozen, or a
// file system hangs where the program, or the working directory, is looked up. Each call has a time-out of a second.
//
// The attacker would have won if a call had no end, if the calls of other pods failed or took long meanwhile (all that kubelets do: exec, status, create,
// start, stop, remove), or if something of the node was held up after the calls had ended: threads, or the container's own removal once it is
// released.
func TestStuckStarts(t *testing.T) {
	n := startNode(t)
	for _, engine := range mainEngines() {
		for name, prepare := range stuckWays {
			t.Run(engine+"/"+name, func(t *testing.T) {
				n.as(t, engine, func(n *node) {
					other := n.pod(nil)
					other.useful("before")   // what is needed for the first time is there from now on
					lasting := n.processes() // not what will start a single command
					s := prepare(n.pod(nil))
					n.flood(s, other)
					harness.Eventually(n, "no thread is held by calls that have ended", func() (bool, string) {
						all := held(lasting)
						return len(all) == 0, fmt.Sprintf("%d threads, such as %.200q", len(all), all)
					})
					other.useful("after the calls")
					s.release()
					begin := time.Now()
					s.stop()
					n.within(begin, "the removal of the container")
					other.useful("after the removal")
				})
			})
		}
	}
}

// flood asks for all the commands at once, and uses another pod until their calls have ended.
func (n *node) flood(s stuck, other *pod) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.ctx, 2*time.Minute*harness.SlowFactor())
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var mu sync.Mutex
	ends := map[string]int{}
	for range n.calls() {
		wg.Go(func() {
			_, err := s.rt.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: s.id, Cmd: s.cmd, Timeout: 1})
			end := "ran"
			switch {
			case ctx.Err() != nil:
				end = "did not end"
			case err != nil:
				end = "was refused, or ended at its time-out"
			}
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	go func() { wg.Wait(); close(done) }()
	for used := 0; ; used++ {
		select {
		case <-done:
			n.Logf("commands: %v; the other pod was used %d times meanwhile", ends, used)
			if ends["did not end"] > 0 {
				n.Errorf("of %d commands %d did not end", n.calls(), ends["did not end"])
			}
			return
		default:
			other.useful("meanwhile")
		}
	}
}

// useful does what a kubelet does with a pod, and fails when a call fails or takes long.
func (p *pod) useful(when string) {
	p.Helper()
	call := func(what string, f func() error) {
		p.Helper()
		begin := time.Now()
		err := f()
		if took := time.Since(begin); err != nil || took > bound() {
			p.Fatalf("%s: %s of another pod took %v: %v", when, what, took, err)
		}
	}
	var c *container
	call("CreateContainer", func() error { c = p.tryCreate(shell(sleeper)); return c.err })
	call("StartContainer", func() error {
		_, err := p.rt.StartContainer(p.ctx, &cri.StartContainerRequest{ContainerId: c.id})
		return err
	})
	call("ExecSync", func() error {
		resp, err := c.tryExec(0, "echo", "fine")
		if err == nil && string(resp.GetStdout()) != "fine\n" {
			err = fmt.Errorf("it answers %v", resp)
		}
		return err
	})
	call("ContainerStatus", func() error {
		_, err := p.rt.ContainerStatus(p.ctx, &cri.ContainerStatusRequest{ContainerId: c.id})
		return err
	})
	call("Status", func() error {
		resp, err := p.rt.Status(p.ctx, &cri.StatusRequest{})
		for _, condition := range resp.GetStatus().GetConditions() {
			if !condition.GetStatus() {
				err = errors.Join(err, fmt.Errorf("%s is false: %s", condition.GetType(), condition.GetMessage()))
			}
		}
		return err
	})
	call("StopContainer", func() error {
		_, err := p.rt.StopContainer(p.ctx, &cri.StopContainerRequest{ContainerId: c.id, Timeout: 0})
		return err
	})
	call("RemoveContainer", func() error {
		_, err := p.rt.RemoveContainer(p.ctx, &cri.RemoveContainerRequest{ContainerId: c.id})
		return err
	})
}

// TestStuckMounts: containers are created whose volume is on a file system that hangs, or whose working directory is. Their callers give up after a
// second.
//
// The attacker would have won if the calls of other pods failed or took long meanwhile, if threads of the executor were held up after the callers
// had gone, or if the containers' pod could not be removed when the file system lets go of them.
func TestStuckMounts(t *testing.T) {
	mostlyNative(t, nil, func(n *node) {
		for name, change := range map[string]func(cfg *cri.ContainerConfig, hang string){
			"volume":            func(cfg *cri.ContainerConfig, hang string) { mounted(cfg, hang+"/hang", "/volume") },
			"below a volume":    func(cfg *cri.ContainerConfig, hang string) { mounted(mounted(cfg, hang, "/v"), "/tmp", "/v/hang") },
			"working directory": func(cfg *cri.ContainerConfig, hang string) { mounted(cfg, hang, "/v"); cfg.WorkingDir = "/v/hang" },
		} {
			other := n.pod(nil)
			other.useful("before")
			lasting := n.processes()
			maps.DeleteFunc(lasting, func(_ int, program string) bool { return program == "monopod" }) // it may ask what a host path is
			fs := harness.MountHanging(n, filepath.Join(n.place(), "hang"))
			p := n.pod(nil)
			ctx, cancel := context.WithTimeout(n.ctx, time.Second*harness.SlowFactor())
			var wg sync.WaitGroup
			for i := range rounds(200) {
				cfg := shell(sleeper)
				cfg.Metadata, cfg.LogPath = &cri.ContainerMetadata{Name: fmt.Sprintf("stuck%d", i)}, fmt.Sprintf("stuck%d.log", i)
				change(cfg, fs.Dir)
				wg.Go(func() {
					if resp, err := p.rt.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: p.id, Config: cfg, SandboxConfig: p.cfg}); err == nil {
						_, _ = p.rt.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: resp.GetContainerId()})
					}
				})
			}
			other.useful(name + ": meanwhile")
			wg.Wait()
			cancel()
			other.useful(name + ": after the callers have gone")
			harness.Eventually(n, "no thread is held for callers that have gone", func() (bool, string) {
				all := held(lasting)
				return len(all) == 0, fmt.Sprintf("%s: %d threads, such as %.200q", name, len(all), all)
			})
			fs.Release()
			begin := time.Now()
			_, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
			n.check(err)
			n.within(begin, "the removal of the pod")
			other.useful(name + ": after the removal")
		}
	})
}

// waiting are the system calls in which a thread of a server may be for long: for its next piece of work.
var waiting = []int64{unix.SYS_FUTEX, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_READ, unix.SYS_RECVMSG, unix.SYS_RECVFROM, unix.SYS_ACCEPT4, unix.SYS_PPOLL,
	unix.SYS_POLL, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_WAITID, unix.SYS_WAIT4, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_PSELECT6, unix.SYS_RESTART_SYSCALL}

// held are the threads of processes that the kernel does not let go on: they start a process, or look up a path. One that has no process any
// more is told, too.
func held(pids map[int]string) (all []string) {
	for pid, name := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if len(tasks) == 0 {
			all = append(all, fmt.Sprintf("%s %d has died", name, pid))
		}
		for _, task := range tasks {
			raw, err := os.ReadFile(task + "/syscall") // "running", or a number and its arguments (proc_pid_syscall(5))
			var number int64
			if err != nil {
				continue // the thread has ended
			}
			if _, err := fmt.Sscan(string(raw), &number); err == nil && number >= 0 && !slices.Contains(waiting, number) {
				all = append(all, fmt.Sprintf("%s %d in the system call %d", name, pid, number))
			}
		}
	}
	return all
}
