package cri

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Lists of all that a runtime holds have no bound, and a message of gRPC has one: they are streamed where the runtime can (CRI of Kubernetes 1.36), and are
// one message where it cannot. What a runtime cannot is remembered for as long as the connection to it. A list of one pod, or of one container, is small.

// streamed reads a streamed list to its end; ok is false where the runtime has no such stream.
func streamed[Res, T any](ctx context.Context, c *Client, unary string, open func(context.Context) (grpc.ServerStreamingClient[Res], error), items func(*Res) []T) (all []T, ok bool, err error) {
	connection := c.connections.made.Load()
	if connection != 0 && c.unstreamed.Load() == connection {
		return nil, false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	stream, err := open(ctx)
	for err == nil {
		var part *Res
		if part, err = stream.Recv(); err == nil {
			all = append(all, items(part)...)
		}
	}
	if status.Code(err) == codes.Unimplemented {
		c.unstreamed.Store(c.connections.made.Load())
		return nil, false, nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if c.observe != nil {
		c.observe(unary, time.Since(began), err)
	}
	return all, true, err
}

// ListPodSandbox lists sandboxes, as CRI's call of this name.
func (c *Client) ListPodSandbox(ctx context.Context, req *cri.ListPodSandboxRequest, opts ...grpc.CallOption) (*cri.ListPodSandboxResponse, error) {
	if f := req.GetFilter(); f.GetId() == "" && len(f.GetLabelSelector()) == 0 {
		all, ok, err := streamed(ctx, c, cri.RuntimeService_ListPodSandbox_FullMethodName, func(ctx context.Context) (grpc.ServerStreamingClient[cri.StreamPodSandboxesResponse], error) {
			return c.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{Filter: f}, opts...)
		}, (*cri.StreamPodSandboxesResponse).GetPodSandboxes)
		if ok {
			return &cri.ListPodSandboxResponse{Items: all}, err
		}
	}
	return c.RuntimeServiceClient.ListPodSandbox(ctx, req, opts...)
}

// ListContainers lists containers, as CRI's call of this name.
func (c *Client) ListContainers(ctx context.Context, req *cri.ListContainersRequest, opts ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	if f := req.GetFilter(); f.GetId() == "" && f.GetPodSandboxId() == "" && len(f.GetLabelSelector()) == 0 {
		all, ok, err := streamed(ctx, c, cri.RuntimeService_ListContainers_FullMethodName, func(ctx context.Context) (grpc.ServerStreamingClient[cri.StreamContainersResponse], error) {
			return c.StreamContainers(ctx, &cri.StreamContainersRequest{Filter: f}, opts...)
		}, (*cri.StreamContainersResponse).GetContainers)
		if ok {
			return &cri.ListContainersResponse{Containers: all}, err
		}
	}
	return c.RuntimeServiceClient.ListContainers(ctx, req, opts...)
}

// ListPodSandboxStats lists the stats of sandboxes, which have their annotations with them, as CRI's call of this name.
func (c *Client) ListPodSandboxStats(ctx context.Context, req *cri.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*cri.ListPodSandboxStatsResponse, error) {
	all, ok, err := streamed(ctx, c, cri.RuntimeService_ListPodSandboxStats_FullMethodName, func(ctx context.Context) (grpc.ServerStreamingClient[cri.StreamPodSandboxStatsResponse], error) {
		return c.StreamPodSandboxStats(ctx, &cri.StreamPodSandboxStatsRequest{Filter: req.GetFilter()}, opts...)
	}, (*cri.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	if ok {
		return &cri.ListPodSandboxStatsResponse{Stats: all}, err
	}
	return c.RuntimeServiceClient.ListPodSandboxStats(ctx, req, opts...)
}

// ListContainerStats lists the stats of containers, as CRI's call of this name.
func (c *Client) ListContainerStats(ctx context.Context, req *cri.ListContainerStatsRequest, opts ...grpc.CallOption) (*cri.ListContainerStatsResponse, error) {
	all, ok, err := streamed(ctx, c, cri.RuntimeService_ListContainerStats_FullMethodName, func(ctx context.Context) (grpc.ServerStreamingClient[cri.StreamContainerStatsResponse], error) {
		return c.StreamContainerStats(ctx, &cri.StreamContainerStatsRequest{Filter: req.GetFilter()}, opts...)
	}, (*cri.StreamContainerStatsResponse).GetContainerStats)
	if ok {
		return &cri.ListContainerStatsResponse{Stats: all}, err
	}
	return c.RuntimeServiceClient.ListContainerStats(ctx, req, opts...)
}

// ListPodSandboxMetrics lists the runtime's own metrics, as CRI's call of this name.
func (c *Client) ListPodSandboxMetrics(ctx context.Context, req *cri.ListPodSandboxMetricsRequest, opts ...grpc.CallOption) (*cri.ListPodSandboxMetricsResponse, error) {
	all, ok, err := streamed(ctx, c, cri.RuntimeService_ListPodSandboxMetrics_FullMethodName, func(ctx context.Context) (grpc.ServerStreamingClient[cri.StreamPodSandboxMetricsResponse], error) {
		return c.StreamPodSandboxMetrics(ctx, &cri.StreamPodSandboxMetricsRequest{}, opts...)
	}, (*cri.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
	if ok {
		return &cri.ListPodSandboxMetricsResponse{PodMetrics: all}, err
	}
	return c.RuntimeServiceClient.ListPodSandboxMetrics(ctx, req, opts...)
}
