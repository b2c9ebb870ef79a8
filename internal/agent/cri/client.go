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
	Log    *slog.Logger
}

// Client is a connection to the runtime; it reconnects by itself, and calls wait for that as long as their context
// allows. It is safe for concurrent use.
type Client struct {
	cri.RuntimeServiceClient
	Images cri.ImageServiceClient

	conn *grpc.ClientConn
	log  *slog.Logger
	// systemd says that the runtime's cgroup driver is systemd.
	systemd atomic.Bool
}

// Dial makes the client; nothing is sent before the first call.
func Dial(cfg Config) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+cfg.Socket,
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
	return &Client{
		RuntimeServiceClient: cri.NewRuntimeServiceClient(conn),
		Images:               cri.NewImageServiceClient(conn),
		conn:                 conn,
		log:                  cfg.Log,
	}, nil
}

// Close ends the connection and all calls under way.
func (c *Client) Close() error { return c.conn.Close() }

// Identity is who the runtime says it is.
type Identity struct{ Name, Version string }

// Identify asks for the runtime's name and version, and learns its cgroup driver.
func (c *Client) Identify(ctx context.Context) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	v, err := c.Version(ctx, &cri.VersionRequest{Version: "v1"})
	if err != nil {
		return Identity{}, fmt.Errorf("CRI Version: %w", err)
	}
	cfg, err := c.RuntimeConfig(ctx, &cri.RuntimeConfigRequest{})
	switch status.Code(err) {
	case codes.OK:
		c.systemd.Store(cfg.GetLinux().GetCgroupDriver() == cri.CgroupDriver_SYSTEMD && cfg.GetLinux() != nil)
	case codes.Unimplemented:
		// Older runtimes do not tell; cgroupfs is what they take a path for.
	default:
		return Identity{}, fmt.Errorf("CRI RuntimeConfig: %w", err)
	}
	return Identity{Name: v.RuntimeName, Version: v.RuntimeVersion}, nil
}

// Systemd says that cgroup parents have to be names of slices. It is known after Identify.
func (c *Client) Systemd() bool { return c.systemd.Load() }

// Condition is the runtime's own judgement of whether it can run pods: empty when it can.
func (c *Client) Condition(ctx context.Context) (fault string, err error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	resp, err := c.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return "", fmt.Errorf("CRI Status: %w", err)
	}
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
