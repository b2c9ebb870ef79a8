package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/image/unpack"
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
	Progress func(unpack.Progress)
}

// Pull fetches the image from its registry (or a mirror that hosts.toml names) and unpacks it. It always asks the
// registry what the reference means now; what the store has already is not fetched again. A pull that asks for the
// same as one under way joins it.
//
// Errors: InvalidArgument (a bad reference, a bad hosts.toml, credentials that cannot be read, no container image),
// NotFound (the registry has no such image, or none for this platform), PermissionDenied (credentials are missing or
// refused), FailedPrecondition (what the registry sent is not what its digest says), ResourceExhausted (the disk is full),
// Unavailable (no host could be reached, or one is overloaded, or a download stood still).
func (s *Store) Pull(ctx context.Context, req PullRequest) (store.Image, error) {
	named, err := imageref.ParseName(req.Ref)
	if err != nil {
		return store.Image{}, err
	}
	var follow func(*unpack.Tracker) (leave func())
	if req.Progress != nil {
		follow = func(track *unpack.Tracker) (leave func()) { return track.Follow(req.Progress) }
	}
	track := unpack.NewTracker()
	img, err := s.pulls.Join(ctx, flight.Work[store.Image, *unpack.Tracker]{Key: named.String() + "\n" + req.Auth.Key(), Shared: track, Cancel: true, Do: func(ctx context.Context) (store.Image, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)()
		return s.pull(s.Scope(ctx), named, req.Auth, track)
	}}, follow)
	if err != nil {
		return store.Image{}, fmt.Errorf("pulling image %s: %w", named, err)
	}
	return img, nil
}

func (s *Store) pull(ctx context.Context, named reference.Named, auth *registry.Auth, track *unpack.Tracker) (_ store.Image, err error) {
	started := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := auth.Check(); err != nil {
		return store.Image{}, err
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
		return store.Image{}, err
	}
	names := pulledNames(named, target.Digest)
	if img, ok := s.Have(names, target.Digest); ok {
		return img, nil // the reference means what it meant before
	}
	held, transfer, err := s.Begin(ctx, named.String())
	if err != nil {
		return store.Image{}, err
	}
	defer func() { transfer.End(ctx, err != nil) }()
	if err := failpoint.Hit("image/pull/resolved"); err != nil {
		return store.Image{}, err
	}

	err = s.unpacker.Image(held, session, target, track)
	if errdefs.IsNotFound(err) {
		if now, moved := s.moved(held, session, named, target); moved {
			target, names = now, pulledNames(named, now.Digest)
			err = s.unpacker.Image(held, session, target, track)
		}
	}
	if err != nil {
		return store.Image{}, err
	}
	if err := failpoint.Hit("image/pull/unpacked"); err != nil {
		return store.Image{}, err
	}
	if _, err := s.Check(held, target); err != nil {
		return store.Image{}, err
	}
	if err := transfer.Publish(held, store.Naming{Target: target, Names: names}); err != nil {
		return store.Image{}, err
	}
	img, err := s.Get(ctx, named.String())
	if err != nil {
		return store.Image{}, fmt.Errorf("the image was removed while it was pulled: %w", errdefs.ErrUnavailable)
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
	if _, err := s.Content.Info(ctx, was.Digest); !errdefs.IsNotFound(err) {
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
