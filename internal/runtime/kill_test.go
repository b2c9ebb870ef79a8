package runtime_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/host/cgroup"
	imagefsck "monopod.dev/monopod/internal/image/fsck"
	"monopod.dev/monopod/internal/kit/failpoint"
	runtimefsck "monopod.dev/monopod/internal/runtime/fsck"
)

// step is one operation of a pod's life, with the points at which something dies while it is done.
type step struct {
	name   string
	points []string
	// do is the operation; p holds what the earlier ones have made.
	do func(n *node, p *pod) error
}

// pod is what the steps work on.
type pod struct{ sandbox, container string }

// steps are in the order of a pod's life; the points of each in the order in which it comes to them.
func steps() []step {
	remove := prefixed("runtime/container-remove/", "persisted", "deleted", "unmounted", "erased", "forgotten")
	leave := prefixed("network/teardown/", "leaving", "unmapped")
	return []step{
		{"run", append(prefixed("runtime/sandbox-run/", "persisted", "cgroup", "namespaces", "shm"),
			append(prefixed("network/setup/", "assigned", "connected", "mapped"), prefixed("runtime/sandbox-run/", "built", "ready")...)...), (*node).stepRun},
		{"create", prefixed("runtime/container-create/", "persisted", "pinned", "mounted", "built", "created", "stored"), (*node).stepCreate},
		{"start", prefixed("runtime/container-start/", "before", "started", "stored"), (*node).stepStart},
		{"stop", prefixed("runtime/container-stop/", "asked"), (*node).stepStop},
		{"remove", append(prefixed("runtime/container-remove/", "ended"), remove...), (*node).stepRemove},
		{"stop the sandbox", append(append(prefixed("runtime/", "sandbox-stop/persisted", "container-stop/killed", "sandbox-stop/containers"), leave...),
			"runtime/sandbox-stop/reclaimed"), (*node).stepStopSandbox},
		{"remove the sandbox", prefixed("runtime/sandbox-remove/", "stopped", "containers", "erased", "forgotten"), (*node).stepRemoveSandbox},
	}
}

func prefixed(prefix string, names ...string) (all []string) {
	for _, name := range names {
		all = append(all, prefix+name)
	}
	return all
}

func (n *node) stepRun(p *pod) error {
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig("kill")})
	p.sandbox = resp.GetPodSandboxId()
	return err
}

func (n *node) stepCreate(p *pod) (err error) {
	p.container, err = n.tryCreate(p.sandbox, shell("kill", sleeper))
	return err
}

func (n *node) stepStart(p *pod) error { return n.tryStart(p.container) }

// stepStop comes when the container has its handler, as launch says.
func (n *node) stepStop(p *pod) error {
	n.eventually("the handler of SIGTERM", func() bool { return n.catches(p.container, syscall.SIGTERM) })
	return n.tryStop(p.container, 30)
}

func (n *node) stepRemove(p *pod) error {
	_, err := n.rt.RemoveContainer(n.ctx, &cri.RemoveContainerRequest{ContainerId: p.container})
	return err
}

func (n *node) stepStopSandbox(p *pod) error {
	_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.sandbox})
	return err
}

func (n *node) stepRemoveSandbox(p *pod) error {
	_, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.sandbox})
	return err
}

// TestServerIsKilled kills the server, by SIGKILL, before and after each side effect of each operation of a pod's life. The next
// server finds what is left of it, and the same call again succeeds: there is exactly what there would be otherwise.
func TestServerIsKilled(t *testing.T) {
	n := newNode(t)
	c := n.startChild()
	for i, s := range steps() {
		for j, point := range s.points {
			p := n.podBefore(i, point)
			n.wantMade(point, p)
			again := *p
			c.say(point)
			if err := s.do(n, p); status.Code(err) != codes.Unavailable {
				t.Fatalf("%s: %s ended with %v", point, s.name, err)
			}
			c.dies(point)
			n.fsck("killed at "+point, fsck.Damaged)
			c = n.startChild()
			n.wantNoHalves(point)
			if err := s.do(n, &again); err != nil {
				t.Fatalf("%s: %s again: %v", point, s.name, err)
			}
			n.wantMade(point, &again)
			if j == len(s.points)-1 { // with the pod as this step leaves it
				c.stop()
				n.fsck("stopped after "+s.name, "")
				c = n.startChild()
			}
			if again.sandbox != "" {
				n.removeSandbox(again.sandbox)
			}
			n.wantClean(point)
		}
	}
	c.stop()
	n.start()
	n.wantNothing()
	n.wantAddresses(0)
}

// fsck lets `monopod fsck`'s checkers look at what a server that does not run has left. severity is that of what must not be found;
// "" is any.
func (n *node) fsck(when string, severity fsck.Severity) {
	n.Helper()
	found, err := imagefsck.Check(n.ctx, imagefsck.Options{Root: filepath.Join(n.dir, "data", "images")})
	n.check(err)
	others, err := runtimefsck.Check(runtimefsck.Options{DataDir: filepath.Join(n.dir, "data"), RunDir: filepath.Join(n.dir, "run"), Images: found})
	n.check(err)
	for _, f := range append(found.Findings, others.Findings...) {
		if severity == "" || f.Severity == severity {
			n.Errorf("%s, fsck finds: %+v", when, f)
		}
	}
}

// TestWorkerIsKilled kills the executor's worker at the points where it has a part. The operation ends well, or with an error after which
// the same call again does. Each death has a node of its own: a keeper pauses before it starts a worker after many.
func TestWorkerIsKilled(t *testing.T) {
	for i, s := range steps() {
		for _, point := range s.points {
			if strings.HasPrefix(point, "network/") || strings.HasPrefix(point, "runtime/sandbox-r") {
				continue // the executor has no part in it
			}
			t.Run(point, func(t *testing.T) {
				n := newNode(t)
				p := n.podBefore(i, point)
				disarm := failpoint.Arm(point, func() error { n.killWorker(); return nil })
				again := *p
				err := s.do(n, p)
				disarm()
				if err != nil {
					if err := s.do(n, &again); err != nil {
						t.Fatalf("%s again: %v", s.name, err)
					}
					p = &again
				}
				n.wantMade(point, p)
				n.removeSandbox(p.sandbox)
				n.wantClean(point)
			})
		}
	}
}

// podBefore does all that comes before a step. A sandbox is stopped, and removed, with a container that runs in it.
func (n *node) podBefore(step int, point string) *pod {
	n.Helper()
	p := &pod{}
	for _, before := range steps()[:step] {
		if step >= 5 && (before.name == "stop" || before.name == "remove") {
			continue
		}
		if err := before.do(n, p); err != nil {
			n.Fatalf("%s: %s before it: %v", point, before.name, err)
		}
	}
	return p
}

// wantMade: there is the pod, its container if it has one, and nothing else.
func (n *node) wantMade(point string, p *pod) {
	n.Helper()
	list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
	n.check(err)
	if len(list.GetItems()) > 1 {
		n.Errorf("%s: sandboxes %v", point, list.GetItems())
	}
	containers, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{})
	n.check(err)
	held, err := n.executor.List(n.ctx)
	n.check(err)
	if len(held) != len(containers.GetContainers()) || len(held) > 1 {
		n.Errorf("%s: the executor holds %v, listed are %v", point, held, containers.GetContainers())
	}
	for _, ctr := range containers.GetContainers() {
		if ctr.GetId() != p.container || ctr.GetPodSandboxId() != p.sandbox {
			n.Errorf("%s: container %v is not %v", point, ctr, p)
		}
	}
}

// wantNoHalves: nothing is on the host but what is listed.
func (n *node) wantNoHalves(point string) {
	n.Helper()
	list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
	n.check(err)
	containers, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{})
	n.check(err)
	for dir, most := range map[string]int{"data/containers": len(containers.GetContainers()), "run/containers": len(containers.GetContainers()), "run/sandboxes": len(list.GetItems())} {
		if left := n.leftIn(dir); len(left) > most {
			n.Errorf("%s: left in %s: %v", point, dir, left)
		}
	}
}

// wantClean: nothing is left of any pod.
func (n *node) wantClean(point string) {
	n.Helper()
	n.wantNoHalves(point)
	host, err := cgroup.Detect()
	n.check(err)
	pids, err := host.Processes(n.cgroupRoot + "/pods")
	if there, e := host.Exists(n.cgroupRoot + "/pods"); e == nil && there && (err != nil || len(pids) > 0) {
		n.Errorf("%s: processes %v are left, %v", point, pids, err)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*" + n.cgroupRoot + "/pods/*/cgroup.procs")
	if err != nil || len(left) > 0 {
		n.Errorf("%s: cgroups %v are left, %v", point, left, err)
	}
	if held, err := n.executor.List(n.ctx); err != nil || len(held) > 0 {
		n.Errorf("%s: the executor holds %v, %v", point, held, err)
	}
}
