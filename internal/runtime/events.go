package runtime

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// GetContainerEvents tells what happens to sandboxes and containers from now on. A reader that falls more than 1,024 events
// behind is cut off with ResourceExhausted: it lists, and subscribes again.
func (s *Server) GetContainerEvents(_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	l := s.hub.Subscribe()
	defer l.Close()
	// The header tells the client that it is subscribed: what happens after it has come is not missed.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case e, ok := <-l.C():
			if !ok {
				return fmt.Errorf("events were not read fast enough; list, and subscribe again: %w", errdefs.ErrResourceExhausted)
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// publish tells an event, with what is known at its time: kubelets take the statuses in it for the pod's, unless they know of a
// later event. So created_at is when the event was made, not when what it tells of happened, which the statuses say; it only grows.
func (s *Server) publish(id, sandboxID string, kind cri.ContainerEventType) {
	s.tell(func() *cri.ContainerEventResponse {
		e := &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, ContainersStatuses: s.containerStatuses(sandboxID)}
		if rec, err := s.sandboxes.Get(sandboxID); err == nil {
			e.PodSandboxStatus = sandboxStatus(&rec)
		}
		return e
	})
}

// tell makes an event, if anybody listens, and publishes it. One is made after the other, so that a later one never knows less.
func (s *Server) tell(event func() *cri.ContainerEventResponse) {
	if s.hub.Idle() {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.told = max(s.told+1, time.Now().UnixNano()) // before it is made: it knows all that happened until then
	e := event()
	e.CreatedAt = s.told
	s.hub.Publish(e)
}

// SandboxStarted implements sandbox.Listener: a sandbox is created and started at once.
func (s *Server) SandboxStarted(rec sandbox.Record) {
	s.publish(rec.ID, rec.ID, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
	s.publish(rec.ID, rec.ID, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}

// SandboxStopped implements sandbox.Listener.
func (s *Server) SandboxStopped(rec sandbox.Record) {
	s.publish(rec.ID, rec.ID, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// SandboxRemoved implements sandbox.Listener.
func (s *Server) SandboxRemoved(rec sandbox.Record) {
	s.stats.Forget(rec.ID)
	s.stats.Sweep(s.known)
	s.tell(func() *cri.ContainerEventResponse {
		return &cri.ContainerEventResponse{ContainerId: rec.ID, ContainerEventType: cri.ContainerEventType_CONTAINER_DELETED_EVENT, PodSandboxStatus: sandboxStatus(&rec)}
	})
}

// ContainerCreated implements container.Listener.
func (s *Server) ContainerCreated(rec container.Record) {
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
}

// ContainerStarted implements container.Listener.
func (s *Server) ContainerStarted(rec container.Record) {
	s.stats.Measure(rec.ID, s.containers.Written(rec.ID))
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}

// ContainerStopped implements container.Listener.
func (s *Server) ContainerStopped(rec container.Record) {
	s.cfg.Log.Info("a container has ended", "container", rec.ID, "name", rec.Config().GetMetadata().GetName(), "code", rec.Exit.Code, "reason", rec.Reason())
	s.stats.Measure(rec.ID, s.containers.Written(rec.ID)) // for the last time
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// ContainerRemoved implements container.Listener.
func (s *Server) ContainerRemoved(rec container.Record) {
	s.stats.Forget(rec.ID)
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// known says whether there is a sandbox or a container with the id.
func (s *Server) known(id string) bool {
	return s.sandboxes.Has(id) || s.containers.Has(id)
}
