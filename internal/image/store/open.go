package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/host/spreaddirs"
	"monopod.dev/monopod/internal/image/faults"
)

// Config says where the store is.
type Config struct {
	// Root is the store's directory; it is made when it is missing. Its file system must be able to hold the layers
	// of an overlay (ext4, xfs with d_type, btrfs; not another overlay).
	Root string
	// ResumeWindow is how long what a failed pull has downloaded is kept for the next attempt; 0 is one hour.
	ResumeWindow time.Duration
	// Platform chooses among the manifests of an index; nil: that of the machine.
	Platform platforms.MatchComparer
	Log      *slog.Logger
}

// Open opens the store. It fails with FailedPrecondition when the file system of Root cannot hold overlay layers, and
// with Unavailable when another process has the store open. ctx bounds the opening, not the store's life.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{log: cfg.Log, root: cfg.Root, platform: cfg.Platform}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.platform == nil {
		s.platform = platforms.Default()
	}
	s.bridge = newLogBridge(context.WithoutCancel(ctx), s.log)
	bridgeStandardLog(context.WithoutCancel(ctx), s.log)
	boot, err := proc.BootID()
	if err != nil {
		return nil, fmt.Errorf("image store %s: %w", cfg.Root, err)
	}
	if err := s.openStores(s.Scope(ctx), boot, cmp.Or(cfg.ResumeWindow, ResumeWindow)); err != nil {
		return nil, errors.Join(err, s.closeAll())
	}
	if err := errors.Join(s.garbage.sweep(s.Scope(ctx)), s.index.rebuild(s.Scope(ctx))); err != nil {
		return nil, errors.Join(fmt.Errorf("image store %s: %w", cfg.Root, err), s.closeAll())
	}
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.garbage.loop(s.Scope(s.life)) })
	return s, nil
}

func (s *Store) openStores(ctx context.Context, boot string, resumeWindow time.Duration) error {
	// Layers have the modes that the image gives their files, setuid root included.
	if err := private.Dir(s.root); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.root, "empty"), 0o755); err != nil {
		return err
	}
	// The bolt file's lock is what keeps a second process out, so it is taken before anything else is touched.
	path := filepath.Join(s.root, "metadata.db")
	bdb, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("image store %s is in use by another process; stop it or choose another data directory: %w",
			s.root, errdefs.ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("image store %s: %w", path, err)
	}
	s.closers = append(s.closers, bdb.Close)
	s.metadata = path
	layers := filepath.Join(s.root, "overlay")
	if err := checkOverlay(layers); err != nil && !faults.DiskFull(err) { // a full disk does not keep a store from opening
		return fmt.Errorf("%s cannot hold the layers of an overlay: %w; put the data directory on ext4, xfs or btrfs, "+
			"not on another overlay, and see that the kernel has overlayfs (modprobe overlay): %w",
			layers, err, errdefs.ErrFailedPrecondition)
	}
	if err := sweepIngests(s.root); err != nil {
		return fmt.Errorf("image store %s: %w", s.root, err)
	}
	if s.Downloads, err = openDownloads(filepath.Join(s.root, "downloads"), boot); err != nil {
		return fmt.Errorf("image store %s: %w", s.root, err)
	}
	blobs, err := local.NewStore(filepath.Join(s.root, "content"))
	if err != nil {
		return fmt.Errorf("image store %s: %w", s.root, err)
	}
	// upperdirLabel makes Stat tell a layer's directory, so that no view has to be made of an image to learn it.
	snaps, err := overlay.NewSnapshotter(layers, overlay.AsynchronousRemove, overlay.WithUpperdirLabel)
	if err != nil {
		return fmt.Errorf("image store %s: %w", layers, err)
	}
	s.closers = append(s.closers, snaps.Close)
	if err := spreaddirs.Directories(filepath.Join(layers, "snapshots")); err != nil {
		return fmt.Errorf("image store %s: %w", layers, err)
	}
	if err := sweepDirectories(ctx, snaps, layers); err != nil {
		return fmt.Errorf("image store %s: removing the leftovers of an interrupted unpack: %w", layers, err)
	}

	between := &faultySnapshots{Snapshotter: snaps}
	s.db = metadata.NewDB(bdb, faultyContent{blobs}, map[string]snapshots.Snapshotter{Snapshotter: between})
	if err := s.db.Init(ctx); err != nil {
		return fmt.Errorf("image store %s: %w", path, faults.NoRoom(err))
	}
	s.db.RegisterMutationCallback(func(bool) { s.sums.changed() })
	s.Content = s.db.ContentStore()
	s.Snapshots = s.db.Snapshotter(Snapshotter)
	s.leases = metadata.NewLeaseManager(s.db)
	list := metadata.NewImageStore(s.db)
	s.index = &index{log: s.log, read: s.inspect, list: func(ctx context.Context) ([]images.Image, error) { return list.List(ctx) }}
	s.names = names{db: s.db, images: list, index: s.index}
	s.sums = sums{content: s.Content, snaps: s.Snapshots}
	s.garbage = garbage{log: s.log, root: s.root, db: s.db, leases: s.leases, content: s.Content, snaps: s.Snapshots, layers: between, downloads: s.Downloads,
		boot: boot, resumeWindow: resumeWindow, collected: s.sums.changed, asked: make(chan struct{}, 1)}
	return nil
}

// Close closes the files. No transfer is under way any more.
func (s *Store) Close() error {
	s.stop()
	s.running.Wait()
	s.garbage.last(s.Scope(context.WithoutCancel(s.life)))
	return s.closeAll()
}

func (s *Store) closeAll() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}
