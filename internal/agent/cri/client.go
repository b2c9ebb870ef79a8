// Package cri is the agent's view of a container runtime: the CRI v1 client, the observation of one pod, and the stream
// of the runtime's events.
//
// It guarantees that an observation is what the runtime answered just now; only what cannot change any more (how a
// container ended, a sandbox's addresses) is remembered. It does not decide anything.
package cri

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup/place"
)

// Time limits of calls. Those that wait for a container's process add its grace.
const (
	// QueryTimeout is for what only reads, including the wait for a runtime that is being restarted.
	QueryTimeout = 15 * time.Second
	// ChangeTimeout is for what creates, starts or removes.
	ChangeTimeout = 4 * time.Minute
)

// Messages of runtimes with many containers are larger than gRPC's default of 4 MiB.
const maxMessage = 64 << 20

// Config says where the runtime is.
type Config struct {
	// Socket is the path of the runtime's unix socket.
	Socket string
	// Observe is told of each call that has one answer; nil: nobody is. method is gRPC's.
	Observe func(method string, took time.Duration, err error)
	Log     *slog.Logger
}

// Client is a connection to the runtime; it reconnects by itself, and calls wait for that as long as their context
// allows. It is safe for concurrent use.
type Client struct {
	cri.RuntimeServiceClient
	Images cri.ImageServiceClient

	conn *grpc.ClientConn
	log  *slog.Logger
	// identity is what the runtime said of itself last.
	identity atomic.Pointer[Identity]
	// features are those of the last answer to Status.
	features    atomic.Pointer[Features]
	connections *connections
	// unstreamed is the connection whose runtime has no streamed lists.
	unstreamed atomic.Int64
	observe    func(method string, took time.Duration, err error)
	// started has when a call was begun that has started a container.
	started chan time.Time
}

// Dial makes the client; nothing is sent before the first call.
func Dial(cfg Config) (*Client, error) {
	c := &Client{log: cfg.Log, observe: cfg.Observe, connections: &connections{}, started: make(chan time.Time, 1)}
	conn, err := grpc.NewClient("unix://"+cfg.Socket,
		grpc.WithStatsHandler(c.connections),
		grpc.WithChainUnaryInterceptor(append(observed(cfg.Observe), c.noteStart)...),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A pod's worker waits until a runtime that is being restarted is back, up to the call's time limit.
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("CRI socket %s: %w", cfg.Socket, err)
	}
	c.conn, c.RuntimeServiceClient, c.Images = conn, cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	return c, nil
}

// observed are the interceptors that tell of calls.
func observed(observe func(method string, took time.Duration, err error)) []grpc.UnaryClientInterceptor {
	if observe == nil {
		return nil
	}
	return []grpc.UnaryClientInterceptor{func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		begin := time.Now()
		err := call(ctx, method, req, reply, conn, opts...)
		observe(method, time.Since(begin), err)
		return err
	}}
}

// Close ends the connection and all calls under way.
func (c *Client) Close() error { return c.conn.Close() }

// Identity is who the runtime says it is.
type Identity struct {
	Name, Version string
	// CgroupDriver is its cgroup driver, in whose words cgroup parents have to be.
	CgroupDriver place.Driver
}

// Identify asks the runtime who it is.
func (c *Client) Identify(ctx context.Context) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	v, err := c.Version(ctx, &cri.VersionRequest{Version: "v1"})
	if err != nil {
		return Identity{}, fmt.Errorf("CRI Version: %w", err)
	}
	id := Identity{Name: v.RuntimeName, Version: v.RuntimeVersion}
	cfg, err := c.RuntimeConfig(ctx, &cri.RuntimeConfigRequest{})
	switch status.Code(err) {
	case codes.OK:
		id.CgroupDriver = place.Of(cfg.GetLinux() != nil && cfg.GetLinux().GetCgroupDriver() == cri.CgroupDriver_SYSTEMD)
	case codes.Unimplemented:
		// Older runtimes do not tell; cgroupfs is what they take a path for.
	default:
		return Identity{}, fmt.Errorf("CRI RuntimeConfig: %w", err)
	}
	c.identity.Store(&id)
	return id, nil
}

// Identity is what the runtime answered to Identify last; zero before the first answer.
func (c *Client) Identity() Identity {
	if id := c.identity.Load(); id != nil {
		return *id
	}
	return Identity{}
}

// Features are what the runtime says that it can, and what each of its handlers can.
type Features struct {
	// Runtime is nil where the runtime does not say, as older ones.
	Runtime  *cri.RuntimeFeatures
	Handlers []*cri.RuntimeHandler
}

// Features is what the runtime answered when it was last asked for its Condition; zero before the first answer.
func (c *Client) Features() Features {
	if f := c.features.Load(); f != nil {
		return *f
	}
	return Features{}
}

// Condition is the runtime's own judgement of whether it can run pods: empty when it can. The runtime may have been
// replaced since it was asked last, so it identifies itself again.
func (c *Client) Condition(ctx context.Context) (fault string, err error) {
	if _, err := c.Identify(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	resp, err := c.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return "", fmt.Errorf("CRI Status: %w", err)
	}
	c.features.Store(&Features{Runtime: resp.GetFeatures(), Handlers: resp.GetRuntimeHandlers()})
	for _, want := range []string{cri.RuntimeReady, cri.NetworkReady} {
		found := false
		for _, cond := range resp.GetStatus().GetConditions() {
			if cond.Type != want {
				continue
			}
			found = true
			if !cond.Status {
				return fmt.Sprintf("container runtime is not ready: %s=false reason:%s message:%s", want, cond.Reason, cond.Message), nil
			}
		}
		if !found {
			return "container runtime does not report the condition " + want, nil
		}
	}
	return "", nil
}
