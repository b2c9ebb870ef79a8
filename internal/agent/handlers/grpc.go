package handlers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

func (h *Handlers) probeGRPC(ctx context.Context, on Subject, what *v1.GRPCAction, timeout time.Duration) Answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := net.JoinHostPort(on.IP, strconv.Itoa(int(what.Port)))
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent("kube-probe/"+h.version),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) }))
	if err != nil {
		return Answer{Failure, fmt.Sprintf("error: failed to connect service at %q: %v", address, err)}
	}
	defer conn.Close()
	if !connected(ctx, conn) {
		return Answer{Failure, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, ctx.Err())}
	}
	req := &grpc_health_v1.HealthCheckRequest{}
	if what.Service != nil {
		req.Service = *what.Service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, req)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return Answer{Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + status.Convert(err).Message()}
	case status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		return Answer{Failure, fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)}
	case err != nil:
		return Answer{Failure, bounded(fmt.Sprintf("error: health rpc probe failed: %v", err))}
	case resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return Answer{Failure, fmt.Sprintf("service unhealthy (responded with %q)", resp.GetStatus().String())}
	}
	return Answer{Success, "service healthy"}
}

// connected awaits the connection; false: the time was over before.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return true
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// bounded is the beginning of a text that a container may have made.
func bounded(s string) string { return s[:min(len(s), MaxOutput)] }
