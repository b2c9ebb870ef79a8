package handlers

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// clinic answers health checks by the names of services.
type clinic struct {
	grpc_health_v1.UnimplementedHealthServer
	mu     sync.Mutex // guards what follows
	agents []string
}

func (c *clinic) Check(ctx context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	c.mu.Lock()
	c.agents = append(c.agents, md["user-agent"]...)
	c.mu.Unlock()
	switch req.Service {
	case "":
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	case "ill":
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	case "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, status.Error(codes.NotFound, "unknown service")
}

func TestGRPC(t *testing.T) {
	start := func(register func(*grpc.Server)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		register(server)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		t.Cleanup(func() {
			server.Stop()
			<-ended
		})
		return l.Addr().String()
	}
	c := &clinic{}
	healthy := start(func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, c) })
	other := start(func(*grpc.Server) {})
	h := New(nil)
	probe := func(address string, service *string, timeout time.Duration) Answer {
		on, port := subject(address)
		return h.Probe(t.Context(), on, &v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port.IntVal, Service: service}}, timeout)
	}
	ill, slow, unknown := "ill", "slow", "unknown"
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, test := range []struct {
		address string
		service *string
		timeout time.Duration
		result  Result
		output  string
	}{
		{healthy, nil, long, Success, "service healthy"},
		{healthy, &ill, long, Failure, `service unhealthy (responded with "NOT_SERVING")`},
		{healthy, &unknown, long, Failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{other, nil, long, Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{silent.Addr().String(), nil, time.Second, Failure, fmt.Sprintf("timeout: failed to connect service %q within 1s: context deadline exceeded", silent.Addr())},
	} {
		if a := probe(test.address, test.service, test.timeout); a.Result != test.result || a.Output != test.output {
			t.Errorf("%v, want %v %q", a, test.result, test.output)
		}
	}
	inTime(t, func(timeout time.Duration) bool {
		a := probe(healthy, &slow, timeout)
		return a == Answer{Failure, fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)}
	}, "a check that does not end is no such failure")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.agents) < 4 || !strings.HasPrefix(c.agents[0], "kube-probe/"+h.version+" ") {
		t.Errorf("they were asked by %q", c.agents)
	}
}
