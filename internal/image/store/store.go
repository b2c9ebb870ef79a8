// Package store keeps images on the disk: their documents, their unpacked layers, their names, and what holds them (pins, and transfers under way); what nothing
// holds is collected. It does not know where images come from. It is built on containerd's packages for metadata, content and snapshots.
//
// Layout of Config.Root: content/ (manifests, configurations), downloads/ (compressed layers under way), metadata.db (names, leases, which snapshot
// belongs to what), overlay/ (the unpacked layers and their own metadata.db), empty/ (the only layer of an image that has none). One process at a
// time can have it open.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/host/spreaddirs"
	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/imageref"
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

// Image is one complete image of the store.
type Image struct {
	// ID is the digest of the image's configuration, "sha256:<hex>".
	ID string
	// RepoTags and RepoDigests are its names, sorted: "docker.io/library/busybox:latest" and
	// "docker.io/library/busybox@sha256:<hex>". An image loaded from an archive without a name has neither.
	RepoTags    []string
	RepoDigests []string
	// Size is what the image takes on disk, in bytes, layers shared with other images included.
	Size uint64
	// Config is what a container of this image runs by default.
	Config ocispec.ImageConfig
	// ChainID identifies the whole stack of layers; empty for an image that has none.
	ChainID string
	// Pinned says that the image must not be removed to free space.
	Pinned bool
}

// Store holds images. All methods are safe for concurrent use. Those that take no reference of a user, but parts of an image, want a context of
// Scope, or of Begin.
type Store struct {
	// Content has manifests and configurations, and Snapshots the unpacked layers, by their chain ids. What is put there stays while a transfer,
	// whose context it is put there with, a name or a pin holds it.
	Content   content.Store
	Snapshots snapshots.Snapshotter
	// Downloads are the layers that are on their way.
	Downloads *Downloads

	log      *slog.Logger
	bridge   *logrus.Entry // what containerd's packages log by
	root     string
	platform platforms.MatchComparer

	db      *metadata.DB
	leases  leases.Manager
	closers []func() error

	index   *index
	names   names
	garbage garbage
	sums    sums // of what the store takes

	metadata string       // the path of the metadata's file
	ballast  atomic.Int64 // how much of its beginning has its room on the disk

	stop    context.CancelFunc
	life    context.Context // ends when the store closes
	running sync.WaitGroup
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
	if err := errors.Join(s.sweep(s.Scope(ctx)), s.index.rebuild(s.Scope(ctx))); err != nil {
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
	s.garbage = garbage{log: s.log, db: s.db, leases: s.leases, snaps: s.Snapshots, layers: between, downloads: s.Downloads,
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

// Scope prepares a context for containerd's packages: the namespace, and their log lines into ours.
func (s *Store) Scope(ctx context.Context) context.Context {
	return log.WithLogger(namespaces.WithNamespace(ctx, Namespace), s.bridge)
}

// Get returns the image that ref names: an image id ("sha256:<hex>" or the bare 64 hex digits), a tag, or a digest
// reference. Short names are completed as docker does: busybox is docker.io/library/busybox:latest. The error is
// NotFound when there is no such image, InvalidArgument when ref cannot be a reference.
func (s *Store) Get(_ context.Context, ref string) (Image, error) {
	name, err := imageref.Parse(ref)
	if err != nil {
		return Image{}, err
	}
	img, ok := s.index.get(name)
	if !ok {
		return Image{}, fmt.Errorf("image %s is not here: %w", ref, errdefs.ErrNotFound)
	}
	return img, nil
}

// List returns all images, by id.
func (s *Store) List(context.Context) ([]Image, error) { return s.index.all(), nil }
