package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// readable is etcd's watch service, which tells of a write only when a read sees it.
//
// etcd sends an event before it ends the write's transaction. Whoever reads then by the log, as other members have to, waits for that end; who does not
// (the API server has the only member) would read what was there before the event.
type readable struct {
	pb.WatchServer
	// revision is the newest one that is read, settled returns when all that is being written can be.
	revision func() int64
	settled  func(context.Context) error
}

// Watch implements pb.WatchServer.
func (r *readable) Watch(stream pb.Watch_WatchServer) error {
	return r.WatchServer.Watch(&readableStream{stream, r})
}

type readableStream struct {
	pb.Watch_WatchServer
	*readable
}

// Send implements pb.Watch_WatchServer. When the wait is cut off, the stream ends: a watch that goes on after what it had tells of the event.
func (s *readableStream) Send(r *pb.WatchResponse) error {
	if n := len(r.Events); n > 0 && r.Events[n-1].Kv.ModRevision > s.revision() {
		if err := s.settled(s.Context()); err != nil {
			return err
		}
	}
	return s.Watch_WatchServer.Send(r)
}
