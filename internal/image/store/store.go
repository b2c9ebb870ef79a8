// Package store keeps images on the disk: their documents, their unpacked layers, their names, and what holds them (pins, and transfers under way); what nothing
// holds is collected. It does not know where images come from. It is built on containerd's packages for metadata, content and snapshots.
//
// Layout of Config.Root: content/ (manifests, configurations), downloads/ (compressed layers under way), metadata.db (names, leases, which snapshot
// belongs to what), overlay/ (the unpacked layers and their own metadata.db), empty/ (the only layer of an image that has none). One process at a
// time can have it open.
package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/platforms"
	"github.com/sirupsen/logrus"

	"monopod.dev/monopod/internal/image/imageref"
)

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
