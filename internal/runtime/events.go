package runtime

import (
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// GetContainerEvents tells what happens to sandboxes and containers from now on. A reader that falls more than 1,024 events
// behind is cut off with ResourceExhausted: it lists, and subscribes again.
func (s *Server) GetContainerEvents(_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	l := s.events.hub.Subscribe()
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
