package image

import (
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
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/kit/flight"
	"monopod.dev/monopod/internal/kit/keyed"
)

const (
	// namespace is containerd's: all that the store holds is in this one.
	namespace = "monopod"
	// snapshotterName appears in the labels by which a configuration refers to its unpacked layers.
	snapshotterName = "overlayfs"
	// defaultResumeWindow is how long the content of a pull that failed is kept for the next attempt.
	defaultResumeWindow = time.Hour
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

// Store holds images. All methods are safe for concurrent use.
type Store struct {
	log          *slog.Logger
	bridge       *logrus.Entry // what containerd's packages log by
	root         string
	registries   *registry.Client
	boot         string // the kernel's id of this boot
	resumeWindow time.Duration
	platform     platforms.MatchComparer

	db      *metadata.DB
	content content.Store
	images  images.Store
	snaps   snapshots.Snapshotter
	leases  leases.Manager
	loads   *downloads
	closers []func() error

	index *index
	pulls flight.Group[Image, *tracker]
	life  context.Context // ends when the store closes
	locks keyed.Lock[string]
	// arrivals are the layers that have come.
	arrivals arrivals
	limits   limits
	room     room.Room

	// activeMu guards active, the leases of pulls and loads that are under way in this process.
	activeMu sync.Mutex
	active   map[string]bool

	// namesMu makes the changes of names, each with its index, one after another.
	namesMu sync.Mutex

	metadata string       // the path of the metadata's file
	ballast  atomic.Int64 // how much of its beginning has its room on the disk

	sums sums // of what the store takes
	late late // what is still to be given back

	layers *faultySnapshots // below snaps

	// collectMu makes one garbage collection run at a time.
	collectMu   sync.Mutex
	collectKick chan struct{}
	stop        context.CancelFunc
	running     sync.WaitGroup
}

// Open opens the store. It fails with FailedPrecondition when the file system of Root cannot hold overlay layers, and
// with Unavailable when another process has the store open. ctx bounds the opening, not the store's life.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{
		log:          cfg.Log,
		root:         cfg.Root,
		registries:   registry.New(registry.Config{HostsDir: cfg.RegistryConfigDir, StallTimeout: cfg.StallTimeout, RetryDelay: cfg.RetryDelay}),
		resumeWindow: cfg.ResumeWindow,
		platform:     platforms.Default(),
		limits:       newLimits(),
		room:         room.Room{Dir: cfg.Root},
		active:       map[string]bool{},
		collectKick:  make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.bridge = newLogBridge(context.WithoutCancel(ctx), s.log)
	bridgeStandardLog(context.WithoutCancel(ctx), s.log)
	var err error
	if s.boot, err = proc.BootID(); err != nil {
		return nil, fmt.Errorf("image store %s: %w", cfg.Root, err)
	}
	if s.resumeWindow == 0 {
		s.resumeWindow = defaultResumeWindow
	}
	if err := s.openStores(s.scope(ctx)); err != nil {
		return nil, errors.Join(err, s.closeAll())
	}
	s.index = newIndex(s)
	if err := errors.Join(s.sweep(s.scope(ctx)), s.index.rebuild(s.scope(ctx))); err != nil {
		return nil, errors.Join(fmt.Errorf("image store %s: %w", cfg.Root, err), s.closeAll())
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.life = life
	s.running.Go(func() { s.collectLoop(s.scope(life)) })
	return s, nil
}

func (s *Store) openStores(ctx context.Context) error {
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
	if s.loads, err = openDownloads(filepath.Join(s.root, "downloads"), s.boot); err != nil {
		return fmt.Errorf("image store %s: %w", s.root, err)
	}
	s.loads.room = s.room
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

	s.layers = &faultySnapshots{Snapshotter: snaps}
	s.db = metadata.NewDB(bdb, faultyContent{blobs}, map[string]snapshots.Snapshotter{snapshotterName: s.layers})
	if err := s.db.Init(ctx); err != nil {
		return fmt.Errorf("image store %s: %w", path, faults.NoRoom(err))
	}
	s.db.RegisterMutationCallback(func(bool) { s.sums.changed() })
	s.content = s.db.ContentStore()
	s.images = metadata.NewImageStore(s.db)
	s.snaps = s.db.Snapshotter(snapshotterName)
	s.leases = metadata.NewLeaseManager(s.db)
	return nil
}

// Close ends the pulls that are under way and closes the files.
func (s *Store) Close() error {
	s.stop()
	s.pulls.Wait()
	s.running.Wait()
	s.collectAsked(s.scope(context.WithoutCancel(s.life)))
	return s.closeAll()
}

func (s *Store) closeAll() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// scope prepares a context for containerd's packages: the namespace, and their log lines into ours.
func (s *Store) scope(ctx context.Context) context.Context {
	return log.WithLogger(namespaces.WithNamespace(ctx, namespace), s.bridge)
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
func (s *Store) List(context.Context) ([]Image, error) { return s.index.list(), nil }
