package runtime

import (
	"context"
	"errors"
	"math"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"monopod.dev/monopod/internal/runtime/errtext"
)

// unaryEdge is where error classes become gRPC codes, once, and where each call is logged.
func (s *Server) unaryEdge(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	begin := time.Now()
	resp, err := handler(ctx, req)
	s.cfg.Log.Debug("CRI call", "rpc", path.Base(info.FullMethod), "took", time.Since(begin), "error", err)
	return resp, toStatus(err, info.FullMethod)
}

func (s *Server) streamEdge(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return toStatus(handler(srv, stream), info.FullMethod)
}

// seconds is a time-out as CRI has it: a negative one is 0, one beyond what a Duration holds (292 years) is the longest.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), math.MaxInt64/int64(time.Second))) * time.Second
}

// toStatus gives an error its code: that of its class, or of a full disk; Unknown for one without.
func toStatus(err error, method string) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		if s.Code() == codes.Unimplemented {
			return status.Errorf(codes.Unimplemented, "%s: %s is not implemented by Monopod yet", Name, path.Base(method))
		}
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return status.Error(codes.ResourceExhausted, errtext.Of(err))
	case errdefs.IsNotImplemented(err):
		return status.Error(codes.Unimplemented, errtext.Of(err))
	}
	p := status.Convert(errgrpc.ToGRPC(err)).Proto()
	p.Message = errtext.Of(err)
	return status.FromProto(p).Err()
}
