package runtime

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A streamed list sends its items in messages of at most so many items, and of about so many bytes: far below what a client
// takes (4 MiB, unless it asks for more), so that a list has no size at which it fails.
const (
	chunkItems = 256
	chunkBytes = 1 << 20
)

// inChunks sends each item once, in messages of at least one item, and returns when all are sent or ctx ends. It holds one
// message's items at a time. No items is no message.
func inChunks[T proto.Message](ctx context.Context, items iter.Seq[T], send func([]T) error) error {
	var chunk []T
	size := 0
	for item := range items {
		n := proto.Size(item)
		if len(chunk) > 0 && (len(chunk) == chunkItems || size+n > chunkBytes) {
			if err := send(chunk); err != nil {
				return err
			}
			chunk, size = nil, 0
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk, size = append(chunk, item), size+n
	}
	if len(chunk) == 0 {
		return ctx.Err()
	}
	return send(chunk)
}

// ListPodSandbox lists the sandboxes that the filter lets through, as they all are at one moment.
func (s *Server) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: slices.Collect(s.podSandboxes(req.GetFilter()))}, nil
}

// StreamPodSandboxes is ListPodSandbox in several messages.
func (s *Server) StreamPodSandboxes(req *cri.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[cri.StreamPodSandboxesResponse]) error {
	return inChunks(stream.Context(), s.podSandboxes(req.GetFilter()), func(chunk []*cri.PodSandbox) error {
		return stream.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: chunk})
	})
}

// ListContainers lists the containers that the filter lets through, as they all are at one moment.
func (s *Server) ListContainers(_ context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: slices.Collect(s.listedContainers(req.GetFilter()))}, nil
}

// StreamContainers is ListContainers in several messages.
func (s *Server) StreamContainers(req *cri.StreamContainersRequest, stream grpc.ServerStreamingServer[cri.StreamContainersResponse]) error {
	return inChunks(stream.Context(), s.listedContainers(req.GetFilter()), func(chunk []*cri.Container) error {
		return stream.Send(&cri.StreamContainersResponse{Containers: chunk})
	})
}

// ListImages lists the images, or the one that the filter names.
func (s *Server) ListImages(ctx context.Context, req *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	all, err := s.listedImages(ctx, req.GetFilter())
	if err != nil {
		return nil, err
	}
	return &cri.ListImagesResponse{Images: slices.Collect(all)}, nil
}

// StreamImages is ListImages in several messages.
func (s *Server) StreamImages(req *cri.StreamImagesRequest, stream grpc.ServerStreamingServer[cri.StreamImagesResponse]) error {
	all, err := s.listedImages(stream.Context(), req.GetFilter())
	if err != nil {
		return err
	}
	return inChunks(stream.Context(), all, func(chunk []*cri.Image) error {
		return stream.Send(&cri.StreamImagesResponse{Images: chunk})
	})
}
