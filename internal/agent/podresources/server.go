package podresources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/host/unixsocket"
)

// DefaultSocket is where clients look for a kubelet's API.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Kubelets' limits of requests, a second and at once, for all clients together.
const (
	rate  = 100
	burst = 10
)

const (
	// maxConnections are open at a time; one more waits until another is closed.
	maxConnections = 64
	// maxRequest bounds what a request may weigh, in bytes: a pod's name and namespace.
	maxRequest = 4096
	// greeting is what a client has for its first words; so long a mute one can hold up the end.
	greeting = 2 * time.Second
	// idle is after how long a connection without calls is closed; clients make a new one for the next.
	idle = 5 * time.Minute
)

// Devices tells of the node's devices. Its methods are safe for concurrent use.
type Devices interface {
	// Devices are all devices by resource and name.
	Devices() []devices.DeviceStatus
	// Grants are what all containers have.
	Grants() []devices.GrantRecord
}

// Pods tells of the node's pods, as the API server has them. Its methods are safe for concurrent use.
type Pods interface {
	// Pods are all pods of the node, those too that have finished.
	Pods() []*v1.Pod
	// Pod finds one by name.
	Pod(namespace, name string) (*v1.Pod, bool)
}

// Config configures a Server.
type Config struct {
	// Socket is the path at which it is served, absolute and of at most 107 bytes; see DefaultSocket. Its folder is made where it is missing.
	Socket string
	// Devices may be nil: nobody has any.
	Devices Devices
	Pods    Pods
	Log     *slog.Logger
}

// Server serves the API. Make it with New.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	cfg     Config
	limiter flowcontrol.PassiveRateLimiter
}

// New checks the configuration; nothing is made before Run.
func New(cfg Config) (*Server, error) {
	if cfg.Pods == nil || cfg.Log == nil {
		return nil, errors.New("podresources: Config.Pods and Config.Log must be set")
	}
	if err := unixsocket.Check(cfg.Socket); err != nil {
		return nil, fmt.Errorf("PodResources: %w", err)
	}
	return &Server{cfg: cfg, limiter: flowcontrol.NewTokenBucketPassiveRateLimiter(rate, burst)}, nil
}

// Run serves until ctx ends, and removes the socket then. Another program's socket at the same path is left alone; that is logged, and tried
// again until the path is free.
func (s *Server) Run(ctx context.Context) {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(16), grpc.ConnectionTimeout(greeting),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle}), grpc.UnaryInterceptor(s.limit), grpc.WaitForHandlers(true))
	api.RegisterPodResourcesListerServer(server, s)
	// With as many connections as there may be, closing the listener alone does not end Serve.
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	unixsocket.Keep(ctx, unixsocket.Config{
		Path:  s.cfg.Socket,
		Serve: func(l net.Listener) { _ = server.Serve(netutil.LimitListener(l, maxConnections)) }, // it ends with the listener
		Tell:  s.tell,
	})
	server.Stop()
}

func (s *Server) tell(err error) {
	if err != nil {
		s.cfg.Log.Error("PodResources is not served, so exporters do not see which pod has which devices; it is tried again", "error", err)
		return
	}
	s.cfg.Log.Info("PodResources is served", "socket", s.cfg.Socket)
}

// limit turns away what comes too fast, in the words of kubelets.
func (s *Server) limit(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !s.limiter.TryAccept() {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return next(ctx, req)
}

// List implements PodResourcesLister: all active pods.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	// The pods first: whoever has got a device since is among them, or is left out for now.
	pods := s.cfg.Pods.Pods()
	return &api.ListPodResourcesResponse{PodResources: list(pods, s.grants())}, nil
}

// Get implements PodResourcesLister: one pod, active or not.
func (s *Server) Get(_ context.Context, req *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	pod, ok := s.cfg.Pods.Pod(req.PodNamespace, req.PodName)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", req.PodName, req.PodNamespace)
	}
	return &api.GetPodResourcesResponse{PodResources: resourcesOf(pod, byPod(s.grants())[string(pod.UID)])}, nil
}

// GetAllocatableResources implements PodResourcesLister: what there is, granted or not.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	if s.cfg.Devices == nil {
		return &api.AllocatableResourcesResponse{}, nil
	}
	return &api.AllocatableResourcesResponse{Devices: allocatable(s.cfg.Devices.Devices())}, nil
}

func (s *Server) grants() []devices.GrantRecord {
	if s.cfg.Devices == nil {
		return nil
	}
	return s.cfg.Devices.Grants()
}
