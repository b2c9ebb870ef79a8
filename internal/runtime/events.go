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

func (s *Server) publish(id, sandboxID string, kind cri.ContainerEventType, at time.Time) {
	e := &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: nanos(at), ContainersStatuses: s.containerStatuses(sandboxID)}
	if rec, err := s.sandboxes.Get(sandboxID); err == nil {
		e.PodSandboxStatus = sandboxStatus(&rec)
	}
	s.hub.Publish(e)
}

// SandboxStarted implements sandbox.Listener: a sandbox is created and started at once.
func (s *Server) SandboxStarted(rec sandbox.Record) {
	s.publish(rec.ID, rec.ID, cri.ContainerEventType_CONTAINER_CREATED_EVENT, rec.CreatedAt)
	s.publish(rec.ID, rec.ID, cri.ContainerEventType_CONTAINER_STARTED_EVENT, rec.ReadyAt)
}

// SandboxStopped implements sandbox.Listener.
func (s *Server) SandboxStopped(rec sandbox.Record) {
	s.publish(rec.ID, rec.ID, cri.ContainerEventType_CONTAINER_STOPPED_EVENT, rec.StoppedAt)
}

// SandboxRemoved implements sandbox.Listener.
func (s *Server) SandboxRemoved(rec sandbox.Record) {
	s.hub.Publish(&cri.ContainerEventResponse{ContainerId: rec.ID, ContainerEventType: cri.ContainerEventType_CONTAINER_DELETED_EVENT,
		CreatedAt: time.Now().UnixNano(), PodSandboxStatus: sandboxStatus(&rec)})
}

// ContainerCreated implements container.Listener.
func (s *Server) ContainerCreated(rec container.Record) {
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_CREATED_EVENT, rec.CreatedAt)
}

// ContainerStarted implements container.Listener.
func (s *Server) ContainerStarted(rec container.Record) {
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_STARTED_EVENT, rec.StartedAt)
}

// ContainerStopped implements container.Listener.
func (s *Server) ContainerStopped(rec container.Record) {
	s.cfg.Log.Info("a container has ended", "container", rec.ID, "name", rec.Config().GetMetadata().GetName(), "code", rec.Exit.Code, "reason", rec.Reason())
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_STOPPED_EVENT, rec.Exit.At)
}

// ContainerRemoved implements container.Listener.
func (s *Server) ContainerRemoved(rec container.Record) {
	s.publish(rec.ID, rec.SandboxID, cri.ContainerEventType_CONTAINER_DELETED_EVENT, time.Now())
}
