package crifake

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EventStream is what a runtime makes of GetContainerEvents.
type EventStream int

// The ways of runtimes. The zero value is a stream that tells everything.
const (
	EventsTold EventStream = iota
	// EventsMissing: the call is not there, as in containerd 1.6.
	EventsMissing
	// EventsOver: the stream ends at once, without an error, as CRI-O's does where enable_pod_events is off, its default.
	EventsOver
	// EventsRefused: it ends at once, with an error.
	EventsRefused
	// EventsSilent: it is open, and nothing is ever told.
	EventsSilent
)

// Events says what streams that are opened from now on are like.
func (r *Runtime) Events(like EventStream) { r.locked(func() { r.events = like }) }

// GetContainerEvents implements CRI.
func (r *Runtime) GetContainerEvents(_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	events := make(chan *cri.ContainerEventResponse, 256)
	var like EventStream
	r.locked(func() {
		if like = r.events; like == EventsTold {
			r.listeners[events] = true
		}
	})
	defer r.locked(func() { delete(r.listeners, events) })
	switch like {
	case EventsMissing:
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents for service runtime.v1.RuntimeService")
	case EventsOver:
		return nil
	case EventsRefused:
		return status.Error(codes.Unknown, "events are not enabled")
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case e := <-events:
			if err := stream.Send(e); err != nil {
				return err
			}
		}
	}
}

// tell sends an event. r.mu is held.
func (r *Runtime) tell(id string, kind cri.ContainerEventType) {
	e := &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano()}
	sandbox := id
	if c := r.containers[id]; c != nil {
		sandbox = c.sandbox
	}
	if s := r.sandboxes[sandbox]; s != nil {
		e.PodSandboxStatus = clone(s)
	}
	for l := range r.listeners {
		select {
		case l <- e:
		default:
		}
	}
}
