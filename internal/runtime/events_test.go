package runtime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

func (n *node) subscribe(ctx context.Context) grpc.ServerStreamingClient[cri.ContainerEventResponse] {
	n.Helper()
	stream, err := n.rt.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	n.check(err)
	_, err = stream.Header()
	n.check(err)
	return stream
}

// TestEvents: each object's events come in the order of its life, also for containers that end at once.
func TestEvents(t *testing.T) {
	n := newNode(t)
	stream := n.subscribe(n.ctx)
	sb := n.run("events")
	var ids []string
	for i := range 5 {
		ids = append(ids, n.launch(sb, shell(fmt.Sprint("quick", i), "exit 3")))
	}
	removed := n.launch(sb, shell("removed", "sleep 3600"))
	n.remove(removed)
	for _, id := range ids {
		n.wait(id)
	}
	n.removeSandbox(sb)
	seen := map[string]string{}
	last, begin := int64(0), time.Now().Add(-time.Minute).UnixNano()
	letters := map[cri.ContainerEventType]string{cri.ContainerEventType_CONTAINER_CREATED_EVENT: "c", cri.ContainerEventType_CONTAINER_STARTED_EVENT: "s",
		cri.ContainerEventType_CONTAINER_STOPPED_EVENT: "e", cri.ContainerEventType_CONTAINER_DELETED_EVENT: "d"}
	for {
		e, err := stream.Recv()
		n.check(err)
		seen[e.GetContainerId()] += letters[e.GetContainerEventType()]
		if e.GetPodSandboxStatus().GetId() != sb || e.GetPodSandboxStatus().GetMetadata().GetUid() == "" {
			t.Errorf("event %v", e)
		}
		// Kubelets take an event for later than another one by this time.
		if at := e.GetCreatedAt(); at <= last || at < begin || at > time.Now().UnixNano() {
			t.Errorf("made at %d, after one of %d", at, last)
		}
		last = e.GetCreatedAt()
		wantStatuses(t, e, sb)
		if e.GetContainerEventType() == cri.ContainerEventType_CONTAINER_STOPPED_EVENT && e.GetContainerId() == ids[0] {
			for _, st := range e.GetContainersStatuses() {
				if st.GetId() == ids[0] && (st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 3) {
					t.Errorf("the status of a stopped container: %v", st)
				}
			}
		}
		if e.GetContainerId() == sb && e.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT {
			break
		}
	}
	for _, id := range append(ids, removed, sb) {
		if seen[id] != "csed" {
			t.Errorf("events of %s: %q, want created, started, ended, deleted", id, seen[id])
		}
	}
}

// wantStatuses: an event holds what was known when it was made, which is what a kubelet with evented PLEG goes by.
func wantStatuses(t *testing.T, e *cri.ContainerEventResponse, sandbox string) {
	t.Helper()
	kind, state := e.GetContainerEventType(), e.GetPodSandboxStatus().GetState()
	if e.GetContainerId() == sandbox {
		ended := kind == cri.ContainerEventType_CONTAINER_STOPPED_EVENT || kind == cri.ContainerEventType_CONTAINER_DELETED_EVENT
		if ended != (state == cri.PodSandboxState_SANDBOX_NOTREADY) || kind == cri.ContainerEventType_CONTAINER_DELETED_EVENT && len(e.GetContainersStatuses()) != 0 {
			t.Errorf("event of a sandbox %v", e)
		}
		return
	}
	var st *cri.ContainerStatus
	for _, c := range e.GetContainersStatuses() {
		if c.GetId() == e.GetContainerId() {
			st = c
		}
	}
	switch kind {
	case cri.ContainerEventType_CONTAINER_STARTED_EVENT:
		if st.GetStartedAt() == 0 {
			t.Errorf("started: %v", st)
		}
	case cri.ContainerEventType_CONTAINER_STOPPED_EVENT:
		if st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetFinishedAt() < st.GetStartedAt() || st.GetFinishedAt() > e.GetCreatedAt() {
			t.Errorf("stopped at %d: %v", e.GetCreatedAt(), st)
		}
	case cri.ContainerEventType_CONTAINER_DELETED_EVENT:
		if st != nil {
			t.Errorf("deleted: %v", st)
		}
	default:
		if st == nil {
			t.Errorf("created: no status in %v", e)
		}
	}
}

// TestEventsOfAFailedStart: a container that could not be started was created, and has ended.
func TestEventsOfAFailedStart(t *testing.T) {
	n := newNode(t)
	sb := n.run("failed")
	stream := n.subscribe(n.ctx)
	cfg := shell("failed", "")
	cfg.Command = []string{"/no/such/program"}
	id := n.create(sb, cfg)
	if err := n.tryStart(id); err == nil {
		t.Error("it was started")
	}
	never := n.create(sb, shell("never", sleeper))
	n.remove(never)
	n.remove(id)
	for _, want := range []struct {
		id   string
		kind cri.ContainerEventType
	}{
		{id, cri.ContainerEventType_CONTAINER_CREATED_EVENT}, {id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT},
		{never, cri.ContainerEventType_CONTAINER_CREATED_EVENT}, {never, cri.ContainerEventType_CONTAINER_DELETED_EVENT}, {id, cri.ContainerEventType_CONTAINER_DELETED_EVENT},
	} {
		e, err := stream.Recv()
		n.check(err)
		if e.GetContainerId() != want.id || e.GetContainerEventType() != want.kind {
			t.Errorf("%s of %s, want %s of %s", e.GetContainerEventType(), e.GetContainerId(), want.kind, want.id)
		}
	}
}

// TestEventsAfterARestart: events are of what happens from the subscription on. What happened before, or while nobody served, is in the
// lists.
func TestEventsAfterARestart(t *testing.T) {
	n := newNode(t)
	sb := n.run("restart")
	gone, kept := n.launch(sb, shell("gone", sleeper)), n.launch(sb, shell("kept", sleeper))
	n.stopServing()
	n.check(n.executor.Kill(n.ctx, protocol.KillRequest{ID: ids.ContainerID(gone), Signal: int(syscall.SIGKILL)}))
	n.awaitExecutor(gone, protocol.Exited)
	n.closeAll()
	n.start()
	stream := n.subscribe(n.ctx)
	if st := n.status(gone); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
		t.Errorf("ended while nobody served: %v", st)
	}
	n.check(n.tryStop(kept, 10))
	e, err := stream.Recv()
	n.check(err)
	if e.GetContainerId() != kept || e.GetContainerEventType() != cri.ContainerEventType_CONTAINER_STOPPED_EVENT {
		t.Errorf("the first event is %v", e)
	}
}

// TestSlowListener: one who does not read holds up nobody, and is told what it has missed.
func TestSlowListener(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	sb := n.run("slow")
	quick := n.subscribe(ctx)
	// A window of a fixed size: the default one grows with what is sent.
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.dir, "cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	n.check(err)
	defer conn.Close()
	slow, err := cri.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &cri.GetEventsRequest{})
	n.check(err)
	_, err = slow.Header()
	n.check(err)
	for range 3000 { // beyond the buffers of the hub and of the connection
		n.server.PublishForTest(sb)
		if _, err := quick.Recv(); err != nil {
			t.Fatalf("one who reads was cut off: %v", err)
		}
	}
	for {
		if _, err := slow.Recv(); err != nil {
			wantCode(t, err, codes.ResourceExhausted, "list")
			return
		}
	}
}
