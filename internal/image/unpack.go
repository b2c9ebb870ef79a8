package image

import (
	"context"
	"fmt"
	"runtime"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/unpack"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"
)

// maxDownloads is how many layers are fetched at a time, by all pulls together.
const maxDownloads = 6

// limits bounds what all pulls together do at a time.
type limits struct {
	downloads *semaphore.Weighted
	unpacks   *semaphore.Weighted
}

func newLimits() limits {
	return limits{
		downloads: semaphore.NewWeighted(maxDownloads),
		unpacks:   semaphore.NewWeighted(int64(max(2, runtime.NumCPU()))),
	}
}

// unpack brings everything of the image that is missing into the store by fetch, and unpacks its layers. Layers are
// fetched and unpacked in parallel, each as soon as it is there; a layer whose snapshot exists is not even fetched.
// The layers are not yet known to be on disk: publish sees to that.
func (s *Store) unpack(ctx context.Context, fetch images.HandlerFunc, target ocispec.Descriptor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	children := images.ChildrenHandler(s.content)
	// A manifest must not hold its compressed layers: once they are unpacked, they may be collected.
	children = images.SetChildrenMappedLabels(s.content, children, images.ChildGCLabelsFilterLayers)
	children = images.FilterPlatforms(children, s.platform)
	children = s.limitManifests(children)
	handler := images.Handlers(fetch, images.HandlerFunc(s.checkConfig), children)

	unpacker, err := unpack.NewUnpacker(ctx, s.content,
		unpack.WithUnpackPlatform(unpack.Platform{
			Platform:                platforms.All, // checkConfig has looked at it
			SnapshotterKey:          snapshotterName,
			Snapshotter:             s.snaps,
			SnapshotterCapabilities: []string{snapshots.RebaseCap},
			Applier:                 s.applier,
		}),
		unpack.WithLimiter(s.limits.downloads),
		unpack.WithUnpackLimiter(s.limits.unpacks),
		unpack.WithDuplicationSuppressor(s.locks),
	)
	if err != nil {
		return err
	}
	if err := images.Dispatch(ctx, unpacker.Unpack(handler), nil, target); err != nil {
		cancel()
		unpacker.Wait() //nolint:errcheck // it only joins what the first error ended
		return err
	}
	_, err = unpacker.Wait()
	return err
}

// limitManifests takes the one manifest of an index that fits this machine best, and names what there is when none does.
func (s *Store) limitManifests(children images.HandlerFunc) images.HandlerFunc {
	limited := images.LimitManifests(children, s.platform, 1)
	return func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		out, err := limited(ctx, desc)
		if errdefs.IsNotFound(err) && images.IsIndexType(desc.MediaType) {
			return nil, s.noPlatform(ctx, desc)
		}
		return out, err
	}
}

func (s *Store) noPlatform(ctx context.Context, index ocispec.Descriptor) error {
	all, err := images.Children(ctx, s.content, index)
	if err != nil {
		return err
	}
	var has []string
	for _, m := range all {
		if m.Platform != nil && m.Platform.OS != "unknown" {
			has = append(has, platforms.Format(*m.Platform))
		}
	}
	return fmt.Errorf("the image has no variant for this machine (%s), it has %v: %w",
		platforms.Format(platforms.DefaultSpec()), has, errdefs.ErrNotFound)
}

// checkConfig looks at an image's configuration before its layers are fetched: is the image for this machine at all?
// A configuration that does not say what it is for is believed to fit.
func (s *Store) checkConfig(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if !images.IsConfigType(desc.MediaType) {
		return nil, nil
	}
	cfg, err := s.readConfig(ctx, desc)
	if err != nil {
		return nil, err
	}
	if cfg.OS == "" || cfg.Architecture == "" {
		return nil, nil
	}
	if has := platforms.Normalize(cfg.Platform); !s.platform.Match(has) {
		return nil, fmt.Errorf("the image is for %s, this machine is %s: %w",
			platforms.Format(has), platforms.Format(platforms.DefaultSpec()), errdefs.ErrNotFound)
	}
	return nil, nil
}
