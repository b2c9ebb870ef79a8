package runtime_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/state"
)

// giveUp makes a call whose client goes while the server is at the failpoint, and returns when the server has come to the end of
// what it does for it.
func (n *node) giveUp(point, rpc string, call func(context.Context) error) {
	n.Helper()
	reached, release := make(chan struct{}), make(chan struct{})
	disarm := failpoint.Arm(point, func() error { close(reached); <-release; return nil })
	before := strings.Count(n.log.String(), "rpc="+rpc)
	ctx, cancel := context.WithCancel(n.ctx)
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	<-reached
	disarm()
	cancel()
	wantCode(n, <-done, codes.Canceled)
	n.eventually("the server to see that the client has gone", func() bool { return strings.Count(n.log.String(), "rpc="+rpc) > before })
	given := len(n.given())
	close(release)
	n.eventually("what was made to be taken down as given up", func() bool { return len(n.given()) > given })
}

// given are the ids of what clients have given up.
func (n *node) given() []string {
	n.Helper()
	var ids []string
	for _, table := range []string{"sandboxes-abandoned", "containers-abandoned"} {
		all, err := state.NewTable[abandon.Record](n.db, table).List()
		n.check(err)
		for id, rec := range all {
			if !rec.At.IsZero() {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (n *node) runGivenUp(name string) {
	n.Helper()
	n.giveUp("runtime/sandbox-run/built", "RunPodSandbox", func(ctx context.Context) error {
		_, err := n.rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig(name)})
		return err
	})
}

func (n *node) createGivenUp(sandbox string, cfg *cri.ContainerConfig) {
	n.Helper()
	n.giveUp("runtime/container-create/created", "CreateContainer", func(ctx context.Context) error {
		_, err := n.rt.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: cfg})
		return err
	})
}

// TestGivenUp: what a client has not waited for is there when it asks again, and for whoever names it; what nobody wants is undone,
// also after a restart.
func TestGivenUp(t *testing.T) {
	n := newNode(t)
	sandboxes := func() (ids []string) {
		list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
		n.check(err)
		for _, sb := range list.GetItems() {
			ids = append(ids, sb.GetId())
		}
		return ids
	}
	n.runGivenUp("again")
	first := n.given()[0]
	if got := sandboxes(); len(got) != 1 || len(n.given()) != 1 {
		t.Errorf("listed %v, given up %v: a list shows it and claims nothing", got, n.given())
	}
	if id := n.run("again"); id != first {
		t.Errorf("the client that asked again got %s, not %s", id, first)
	}
	n.createGivenUp(first, shell("again", sleeper))
	n.createGivenUp(first, shell("named", sleeper))
	again := n.create(first, shell("again", sleeper))
	list, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{})
	n.check(err)
	if len(list.GetContainers()) != 2 || len(n.given()) != 1 || n.given()[0] == again {
		t.Fatalf("containers %v, given up %v", list, n.given())
	}
	named := n.given()[0]
	n.status(named[:10])
	n.runGivenUp("named")
	n.sandboxStatus(n.given()[0])
	if got := n.given(); len(got) != 0 {
		t.Errorf("given up although it is named: %v", got)
	}

	n.runGivenUp("lost")
	lost := n.given()[0]
	n.createGivenUp(first, shell("lost", sleeper))
	n.runGivenUp("kept") // its client comes back after the restart
	stream := n.subscribe(n.ctx)
	n.abandonAfter = time.Second
	n.restart()
	kept := n.run("kept")
	n.eventually("what is lost to be undone", func() bool { return len(n.given()) == 0 })
	if got := sandboxes(); len(got) != 3 || slices.Contains(got, lost) || !slices.Contains(got, kept) {
		t.Errorf("sandboxes %v are left; %s is lost, %s is kept", got, lost, kept)
	}
	if list, err = n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{}); err != nil || len(list.GetContainers()) != 2 {
		t.Errorf("containers %v, %v", list, err)
	}
	n.wantAddresses(3)
	n.check(n.tryStart(again))
	if _, err := stream.Recv(); err == nil {
		t.Error("a stream outlived its server")
	}
	// Its name is free.
	if id := n.run("lost"); id == lost {
		t.Errorf("%s is undone, and was returned", lost)
	}
}

// TestNeverAnswered: what was made by a call that a crash kept from its answer is undone, unless somebody claims it after the restart.
func TestNeverAnswered(t *testing.T) {
	n := newNode(t)
	idle, busy := n.run("idle"), n.run("busy") // nobody names the first one ever again
	n.restart()
	unanswered := func() (all int) {
		for _, table := range []string{"sandboxes-abandoned", "containers-abandoned"} {
			recs, err := state.NewTable[abandon.Record](n.db, table).List()
			n.check(err)
			all += len(recs)
		}
		return all
	}
	if got := unanswered(); got != 0 {
		t.Errorf("%d answered calls are not known to be", got)
	}
	run := func(name string) {
		_, _ = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig(name)})
	}
	create := func(name string) { _, _ = n.tryCreate(busy, shell(name, sleeper)) }
	n.crash("runtime/sandbox-run/ready", func() { run("lost") })
	n.crash("runtime/sandbox-run/ready", func() { run("kept") })
	n.crash("runtime/container-create/stored", func() { create("lost") })
	n.crash("runtime/container-create/stored", func() { create("kept") })
	if got := unanswered(); got != 4 {
		t.Errorf("%d calls are not answered, want 4", got)
	}
	n.abandonAfter = 2 * time.Second
	n.restart()
	kept, named := n.run("kept"), n.create(busy, shell("kept", sleeper))
	n.eventually("what nobody got to be undone", func() bool { return unanswered() == 0 })
	sandboxes, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
	n.check(err)
	var ids []string
	for _, sb := range sandboxes.GetItems() {
		ids = append(ids, sb.GetId())
	}
	slices.Sort(ids)
	want := []string{idle, busy, kept}
	if slices.Sort(want); !slices.Equal(ids, want) {
		t.Errorf("sandboxes %v, want %v", ids, want)
	}
	containers, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{})
	n.check(err)
	if len(containers.GetContainers()) != 1 || containers.GetContainers()[0].GetId() != named {
		t.Errorf("containers %v, want %s", containers.GetContainers(), named)
	}
	n.wantAddresses(3)
}
