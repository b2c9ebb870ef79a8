package runtime_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// TestContainerHangsInTheKernel: a container that no signal ends holds up no call for long, and nobody else. When the kernel lets go of
// it, it can be removed.
func TestContainerHangsInTheKernel(t *testing.T) {
	n := prepareNode(t)
	n.killBound = time.Second
	startNode(n)
	fs := harness.MountHanging(t, filepath.Join(n.dir, "hang"))
	sb := n.run("hang")
	cfg := shell("hang", "cat /hang/hang")
	cfg.Mounts = []*cri.Mount{{HostPath: fs.Dir, ContainerPath: "/hang"}}
	id := n.launch(sb, cfg)
	select {
	case <-fs.Asked:
	case <-n.ctx.Done():
		t.Fatal("nobody looked at the file")
	}
	bounded := func(what string, call func() error) {
		t.Helper()
		begin := time.Now()
		wantCode(t, call(), codes.DeadlineExceeded, id)
		if took := time.Since(begin); took > patience()/2 {
			t.Errorf("%s took %v", what, took)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		bounded("StopContainer", func() error { return n.tryStop(id, 0) })
	})
	other := n.launch(sb, shell("other", sleeper)) // meanwhile
	n.check(n.tryStop(other, 10))
	wg.Wait()
	bounded("RemoveContainer", func() error {
		_, err := n.rt.RemoveContainer(n.ctx, &cri.RemoveContainerRequest{ContainerId: id})
		return err
	})
	bounded("StopPodSandbox", func() error {
		_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb})
		return err
	})
	bounded("RemovePodSandbox", func() error {
		_, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb})
		return err
	})
	if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("it has not ended: %v", st)
	}
	begin := time.Now()
	n.restart()
	if took := time.Since(begin); took > patience()/2 {
		t.Errorf("a start beside it took %v", took)
	}
	n.remove(n.create(n.run("another"), shell("another", sleeper)))

	fs.Release()
	if st := n.wait(id); st.GetExitCode() != 137 {
		t.Errorf("it was killed: %v", st)
	}
	n.remove(id)
	n.removeSandbox(sb)
}
