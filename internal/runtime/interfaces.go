package runtime

import (
	"context"
	"io"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/runtime/stream"
)

// ImageStore is what the runtime needs of package image.
type ImageStore interface {
	container.Images
	List(ctx context.Context) ([]image.Image, error)
	Pull(ctx context.Context, req image.PullRequest) (image.Image, error)
	Remove(ctx context.Context, ref string) error
	Load(ctx context.Context, r io.Reader) (names []string, err error)
	FsInfo(ctx context.Context) (mountpoint string, usedBytes, inodes uint64, err error)
}

// Network is what the runtime needs of package network.
type Network interface {
	sandbox.Network
	// Reconcile makes the addresses in use those of the live sandboxes, by id, with the paths of their network namespaces.
	Reconcile(ctx context.Context, live map[string]string) error
	// Status is nil when sandboxes can be connected.
	Status(ctx context.Context) error
}

// Executor is what the runtime needs of the executor's client.
type Executor interface {
	container.Executor
	stream.Executor
}

var _ Network = (*network.Bridge)(nil)
