package unpack

import (
	"log/slog"

	"github.com/containerd/platforms"
	"golang.org/x/sync/semaphore"

	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/keyed"
)

import ()

// Config is what an unpacker works with.
type Config struct {
	Store *store.Store
	// Platform chooses among the manifests of an index.
	Platform platforms.MatchComparer
	Room     room.Room
	// Windows is the memory for zstd streams, which archives use too.
	Windows *semaphore.Weighted
	Limits  Limits
	Log     *slog.Logger
}

// Unpacker unpacks images into a store. All methods are safe for concurrent use.
type Unpacker struct {
	Config
	layers   *semaphore.Weighted // turns of layers, of all images
	locks    keyed.Lock[string]
	arrivals arrivals // the layers that have come
}

// New makes the unpacker of a store, of which there is one.
func New(cfg Config) *Unpacker {
	return &Unpacker{Config: cfg, layers: semaphore.NewWeighted(maxLayersAtOnce)}
}
