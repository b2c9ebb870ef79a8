package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Defragment writes the file anew, for tests that cannot wait for the keeper.
func (s *Server) Defragment() error { return s.etcd.Server.Defragment() }

// RaiseAlarm has etcd refuse puts.
func (s *Server) RaiseAlarm(ctx context.Context) error {
	_, err := s.etcd.Server.Alarm(ctx, &pb.AlarmRequest{MemberID: uint64(s.etcd.Server.MemberID()), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE})
	return err
}
