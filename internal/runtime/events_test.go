package runtime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	letters := map[cri.ContainerEventType]string{cri.ContainerEventType_CONTAINER_CREATED_EVENT: "c", cri.ContainerEventType_CONTAINER_STARTED_EVENT: "s",
		cri.ContainerEventType_CONTAINER_STOPPED_EVENT: "e", cri.ContainerEventType_CONTAINER_DELETED_EVENT: "d"}
	for {
		e, err := stream.Recv()
		n.check(err)
		seen[e.GetContainerId()] += letters[e.GetContainerEventType()]
		if e.GetPodSandboxStatus().GetId() != sb || e.GetCreatedAt() == 0 {
			t.Errorf("event %v", e)
		}
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
