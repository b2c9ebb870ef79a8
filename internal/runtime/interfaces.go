package runtime

import (
	"context"
	"io"
	"net/netip"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/runtime/container/end"
	"monopod.dev/monopod/internal/runtime/container/life"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/runtime/stats"
	"monopod.dev/monopod/internal/runtime/stream"
)

// ImageStore is what the runtime needs of package image.
type ImageStore interface {
	life.Images
	List(ctx context.Context) ([]store.Image, error)
	Pull(ctx context.Context, req image.PullRequest) (store.Image, error)
	Remove(ctx context.Context, ref string) error
	Load(ctx context.Context, req image.LoadRequest) ([]image.LoadedImage, error)
	Save(ctx context.Context, refs []string, w io.Writer) error
	Tools
	FsInfo(ctx context.Context) (mountpoint string, usedBytes, inodes uint64, err error)
}

// Tools is what only people ask of the images.
type Tools interface {
	Inspect(ctx context.Context, id ids.ImageID) (store.Details, error)
	Untag(ctx context.Context, names ...string) error
	Names(id ids.ImageID) []string
	Reclaimable(ctx context.Context, these []ids.ImageID) uint64
}

// Network is what the runtime needs of package network.
type Network interface {
	sandbox.Network
	// Reconcile makes the addresses in use those of the live sandboxes, by id, with the paths of their network namespaces. One whose
	// path is empty keeps what it has, and is left as it is.
	Reconcile(ctx context.Context, live map[ids.SandboxID]string) error
	// Status is nil when sandboxes can be connected.
	Status(ctx context.Context) error
	// Warnings is what this host cannot give its pods, in words.
	Warnings() []string
	// UpdatePodCIDR sets the ranges that new sandboxes get their addresses from, at most one of each family.
	UpdatePodCIDR(ctx context.Context, ranges []netip.Prefix) error
	stats.Network
}

// Executor is what the runtime needs of the executor's client.
type Executor interface {
	life.Executor
	end.Executor
	stream.Executor
	Init(ctx context.Context, req protocol.InitRequest) (protocol.InitResponse, error)
	// Ping waits until the executor says who it is.
	Ping(ctx context.Context) (protocol.HelloResponse, error)
}

var _ Network = (*bridge.Bridge)(nil)
