package image

import (
	"context"
	"log/slog"
	"time"

	"github.com/containerd/platforms"

	"monopod.dev/monopod/internal/image/archive"
	"monopod.dev/monopod/internal/image/decompress"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/image/unpack"
	"monopod.dev/monopod/internal/kit/flight"
)

// Config says where the store is and how it reaches registries.
type Config struct {
	// Root is the store's directory; it is made when it is missing. Its file system must be able to hold the layers
	// of an overlay (ext4, xfs with d_type, btrfs; not another overlay).
	Root string
	// RegistryConfigDir holds HOST/hosts.toml files in containerd's format; empty, or a directory that does not
	// exist: every registry by its own name over HTTPS, loopback ones over HTTP too.
	RegistryConfigDir string
	// StallTimeout ends a pull whose download delivers no byte for so long; 0 is one minute, less than 0 never.
	StallTimeout time.Duration
	// ResumeWindow is how long what a failed pull has downloaded is kept for the next attempt; 0 is one hour.
	ResumeWindow time.Duration
	// RetryDelay is how long the first wait before another attempt is, when a registry is overloaded or a connection
	// breaks; each further wait is twice as long, unless the registry names one. 0 is half a second.
	RetryDelay time.Duration
	Log        *slog.Logger
}

// Store is a store of images that brings them itself: it pulls, loads and saves. All methods are safe for concurrent use.
type Store struct {
	*store.Store
	log        *slog.Logger
	registries *registry.Client
	unpacker   *unpack.Unpacker
	archives   archive.Reader

	pulls flight.Group[store.Image, *unpack.Tracker]
	life  context.Context // ends when the store closes
	stop  context.CancelFunc
}

// Open opens the store. It fails with FailedPrecondition when the file system of Root cannot hold overlay layers, and
// with Unavailable when another process has the store open. ctx bounds the opening, not the store's life.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	platform, free, windows := platforms.Default(), room.Room{Dir: cfg.Root}, decompress.NewWindows()
	kept, err := store.Open(ctx, store.Config{Root: cfg.Root, ResumeWindow: cfg.ResumeWindow, Platform: platform, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	s := &Store{
		Store:      kept,
		log:        cfg.Log,
		registries: registry.New(registry.Config{HostsDir: cfg.RegistryConfigDir, StallTimeout: cfg.StallTimeout, RetryDelay: cfg.RetryDelay}),
		unpacker:   unpack.New(unpack.Config{Store: kept, Platform: platform, Room: free, Windows: windows, Limits: unpack.DefaultLimits(), Log: cfg.Log}),
		archives:   archive.Reader{Content: kept.Content, Platform: platform, Room: free, Windows: windows},
	}
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	return s, nil
}

// Close ends the pulls that are under way and closes the files.
func (s *Store) Close() error {
	s.stop()
	s.pulls.Wait()
	return s.Store.Close()
}
