package store

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// What the metadata database does with files and directories happens in containerd's packages. These two stand between them, and put a
// failpoint before and after each side effect: what if the process ends here? Else they change nothing, but that a blob which a full
// disk keeps from being begun leaves nothing.

type faultyContent struct{ content.Store }

type faultySnapshots struct {
	snapshots.Snapshotter
	// unused: there are directories of layers that nobody uses, which removeUnused removes.
	unused atomic.Bool
}

func (c faultyContent) Delete(ctx context.Context, d digest.Digest) error {
	return failpoint.Around("image/blob/delete", func() error { return c.Store.Delete(ctx, d) })
}

func (c faultyContent) Abort(ctx context.Context, ref string) error {
	return failpoint.Around("image/blob/abort", func() error { return c.Store.Abort(ctx, ref) })
}

func (c faultyContent) Writer(ctx context.Context, opts ...content.WriterOpt) (w content.Writer, err error) {
	err = failpoint.Around("image/blob/begin", func() error {
		w, err = c.Store.Writer(ctx, opts...)
		return err
	})
	if faults.DiskFull(err) { // its directory is there by then, and would stay until the next start
		var o content.WriterOpts
		for _, opt := range opts {
			err = errors.Join(err, opt(&o))
		}
		if aerr := c.Store.Abort(ctx, o.Ref); aerr != nil && !errdefs.IsNotFound(aerr) {
			err = errors.Join(err, aerr)
		}
	}
	if err != nil {
		return nil, err
	}
	return faultyWriter{w}, nil
}

// WalkStatusRefs is the fast way to the names of downloads, which the metadata looks for.
func (c faultyContent) WalkStatusRefs(ctx context.Context, f func(string) error) error {
	if w, ok := c.Store.(interface {
		WalkStatusRefs(context.Context, func(string) error) error
	}); ok {
		return w.WalkStatusRefs(ctx, f)
	}
	all, err := c.Store.ListStatuses(ctx)
	for _, st := range all {
		if err := f(st.Ref); err != nil {
			return err
		}
	}
	return err
}

type faultyWriter struct{ content.Writer }

func (w faultyWriter) Commit(ctx context.Context, size int64, expected digest.Digest, opts ...content.Opt) error {
	return failpoint.Around("image/blob/commit", func() error { return w.Writer.Commit(ctx, size, expected, opts...) })
}

// Sync implements content.Syncer.
func (w faultyWriter) Sync() error {
	if s, ok := w.Writer.(content.Syncer); ok {
		return s.Sync()
	}
	return nil
}

func (s *faultySnapshots) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) (mounts []mount.Mount, err error) {
	err = failpoint.Around("image/snapshot/prepare", func() error {
		mounts, err = s.Snapshotter.Prepare(ctx, key, parent, opts...)
		return err
	})
	return mounts, err
}

func (s *faultySnapshots) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	return failpoint.Around("image/snapshot/commit", func() error { return s.Snapshotter.Commit(ctx, name, key, opts...) })
}

func (s *faultySnapshots) Remove(ctx context.Context, key string) error {
	return failpoint.Around("image/snapshot/remove", func() error {
		err := s.Snapshotter.Remove(ctx, key)
		if err == nil { // a collection that fails after this one calls no Cleanup
			s.unused.Store(true)
		}
		return err
	})
}

// Cleanup implements snapshots.Cleaner. The metadata calls it within a collection, of which there is one at a time: directories with a hundred thousand files
// are removed after that, by removeUnused.
func (s *faultySnapshots) Cleanup(context.Context) error {
	s.unused.Store(true)
	return nil
}

// removeUnused removes the directories of layers that a collection has let go of. No lock is held meanwhile: pulls and removals go on beside it.
func (s *faultySnapshots) removeUnused(ctx context.Context) error {
	cleaner, ok := s.Snapshotter.(snapshots.Cleaner)
	if !ok || !s.unused.Swap(false) {
		return nil
	}
	err := failpoint.Around("image/snapshot/cleanup", func() error { return cleaner.Cleanup(ctx) })
	if err != nil {
		s.unused.Store(true)
	}
	return err
}
