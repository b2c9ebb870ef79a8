package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/flight"
)

// PullRequest says what to pull.
type PullRequest struct {
	// Ref is a tag or digest reference, completed as docker does.
	Ref string
	// Auth may be nil.
	Auth *registry.Auth
	// Progress, when it is set, is told how far the pull is: at once when a layer gets into another state, and now and then
	// of bytes. It is called by one goroutine at a time and not after Pull has returned. The pull does not wait for it; a
	// call that joins a pull under way is told of that one.
	Progress func(Progress)
}

// Pull fetches the image from its registry (or a mirror that hosts.toml names) and unpacks it. It always asks the
// registry what the reference means now; what the store has already is not fetched again. A pull that asks for the
// same as one under way joins it.
//
// Errors: InvalidArgument (a bad reference, a bad hosts.toml, credentials that cannot be read, no container image),
// NotFound (the registry has no such image, or none for this platform), PermissionDenied (credentials are missing or
// refused), FailedPrecondition (what the registry sent is not what its digest says), ResourceExhausted (the disk is full),
// Unavailable (no host could be reached, or one is overloaded, or a download stood still).
func (s *Store) Pull(ctx context.Context, req PullRequest) (Image, error) {
	named, err := imageref.ParseName(req.Ref)
	if err != nil {
		return Image{}, err
	}
	var follow func(*tracker) (leave func())
	if req.Progress != nil {
		follow = func(track *tracker) (leave func()) { return track.follow(req.Progress) }
	}
	track := newTracker()
	img, err := s.pulls.Join(ctx, flight.Work[Image, *tracker]{Key: named.String() + "\n" + req.Auth.Key(), Shared: track, Cancel: true, Do: func(ctx context.Context) (Image, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)()
		return s.pull(s.scope(ctx), named, req.Auth, track)
	}}, follow)
	if err != nil {
		return Image{}, fmt.Errorf("pulling image %s: %w", named, err)
	}
	return img, nil
}

func (s *Store) pull(ctx context.Context, named reference.Named, auth *registry.Auth, track *tracker) (_ Image, err error) {
	started := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := auth.Check(); err != nil {
		return Image{}, err
	}
	session := s.registries.Session(ctx, named, auth, cancel)
	defer session.Close()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			err = cause // the reason, instead of "context canceled"
		}
		if err != nil {
			err = session.Explain(registry.Classify(err))
		}
	}()

	target, err := session.Resolve(ctx)
	if err != nil {
		return Image{}, err
	}
	names := pulledNames(named, target.Digest)
	if img, ok := s.index.whole(names, target.Digest); ok {
		return img, nil // the reference means what it meant before
	}
	ctx, lease, end, err := s.beginTransfer(ctx, named.String())
	if err != nil {
		return Image{}, err
	}
	defer func() { end(err != nil) }()
	if err := failpoint.Hit("image/pull/resolved"); err != nil {
		return Image{}, err
	}

	err = s.unpack(ctx, session, target, track)
	if errdefs.IsNotFound(err) {
		if now, moved := s.moved(ctx, session, named, target); moved {
			target, names = now, pulledNames(named, now.Digest)
			err = s.unpack(ctx, session, target, track)
		}
	}
	if err != nil {
		return Image{}, err
	}
	if err := failpoint.Hit("image/pull/unpacked"); err != nil {
		return Image{}, err
	}
	if _, err := s.inspect(ctx, target); err != nil {
		return Image{}, err
	}
	if err := s.publish(ctx, lease, naming{target: target, names: names}); err != nil {
		return Image{}, err
	}
	img, ok := s.index.get(imageref.Ref{Name: named})
	if !ok {
		return Image{}, fmt.Errorf("the image was removed while it was pulled: %w", errdefs.ErrUnavailable)
	}
	s.log.InfoContext(ctx, "image pulled", "image", named.String(), "id", img.ID, "duration", time.Since(started))
	return img, nil
}

// moved says what a tag means now when the manifest that it meant a moment ago is gone: it was pushed anew meanwhile, and
// the registry keeps no manifest without a tag.
func (s *Store) moved(ctx context.Context, session *registry.Session, named reference.Named, was ocispec.Descriptor) (ocispec.Descriptor, bool) {
	if _, byTag := named.(reference.Tagged); !byTag {
		return was, false
	}
	if _, err := s.content.Info(ctx, was.Digest); !errdefs.IsNotFound(err) {
		return was, false // it is something of the image that is not there
	}
	now, err := session.Resolve(ctx)
	return now, err == nil && now.Digest != was.Digest
}

// pulledNames are the names that a pulled image gets: the reference itself, and the digest it stood for.
func pulledNames(named reference.Named, target digest.Digest) []string {
	names := []string{named.String()}
	byDigest, err := reference.WithDigest(reference.TrimNamed(named), target)
	if err == nil && byDigest.String() != named.String() {
		names = append(names, byDigest.String())
	}
	return names
}

// naming is one image, and the names that it is to have.
type naming struct {
	target ocispec.Descriptor
	names  []string
	made   bool // the manifest was made here: no registry knows its digest
}

// publish gives images their names and drops the lease, in one transaction: from now on the names hold the content.
// The layers are written to disk before, all with one call: a name must not lead to a layer that a power loss tore.
// (Layers without a name yet may be torn: dropStaleTransfers drops them after a reboot.)
func (s *Store) publish(ctx context.Context, lease leases.Lease, namings ...naming) error {
	if err := syncFS(s.root); err != nil {
		return err
	}
	if err := failpoint.Hit("image/publish/synced"); err != nil {
		return err
	}
	err := s.changeNames(ctx, func(ctx context.Context) error {
		for _, n := range namings {
			for _, name := range n.names {
				rec := images.Image{Name: name, Target: n.target}
				_, err := s.images.Update(ctx, rec, "target")
				if errdefs.IsNotFound(err) {
					_, err = s.images.Create(ctx, rec)
				}
				if err != nil {
					return fmt.Errorf("naming the image %s: %w", name, err)
				}
			}
		}
		return s.leases.Delete(ctx, lease)
	})
	if err != nil {
		return err
	}
	return failpoint.Hit("image/published")
}

// syncFS writes the whole file system of the directory to disk.
func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("writing the file system of %s to disk: %w", dir, err)
	}
	return nil
}
