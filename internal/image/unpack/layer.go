package unpack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/host/untar"
	"monopod.dev/monopod/internal/image/decompress"
	"monopod.dev/monopod/internal/image/document"
	"monopod.dev/monopod/internal/image/download"
	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/recipe"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// maxFreshStarts is how many times a layer that came damaged is fetched again: from a mirror, from another one, and from
// the registry itself.
const maxFreshStarts = 3

// unpacking is one layer that is being unpacked.
//
// All layers of an image are unpacked side by side, each into a snapshot without a parent; in the end each becomes, in
// order, the child of the one below it. The lock of a layer's chain id keeps other pulls from the same registry from doing the same meanwhile (source.go);
// they find it there. Pulls that share layers cannot block each other: who holds a layer's lock waits only for layers
// below it, for the lock of its blob, and for a turn, in this order; and who has the later ones never waits for the
// earlier ones.
type unpacking struct {
	document.Layer
	by    *Unpacker
	from  Source
	track *Tracker
	i     int // its place in the image
	meter *imageMeter

	turn    *turn
	ready   chan struct{} // closed when prepare has returned; what follows is not touched before by anybody else
	whole   bool          // prepare has succeeded: all of the layer is there, and both digests are right
	unlock  func()        // gives the lock of the layer back; nil: it is not had
	exists  bool          // another pull has brought it
	ended   bool
	key     string // of the snapshot that is filled; "" when there is none
	dir     string
	implied []string
}

// download is the name of the layer's download.
func (u *unpacking) download() string { return store.DownloadName(registryOf(u.from), u.Desc.Digest) }

// prepare unpacks the layer unless it is there.
func (u *unpacking) prepare(ctx context.Context, turns chan struct{}) error {
	var err error
	if u.unlock, err = u.by.locks.Lock(ctx, "layer://"+registryOf(u.from)+"/"+u.Chain); err != nil {
		return err
	}
	for {
		until, forget := u.by.arrivals.watch(ctx, u.Chain) // before it is looked whether it is there
		err := u.bring(until, turns)
		brought := errors.Is(context.Cause(until), errBrought)
		forget()
		if err == nil || !brought || ctx.Err() != nil {
			return err
		}
		if err := u.dropSnapshot(ctx); err != nil {
			return err
		}
	}
}

// bring is prepare for who has the layer's lock.
func (u *unpacking) bring(ctx context.Context, turns chan struct{}) error {
	un := u.by
	if err := u.makeSnapshot(ctx); err != nil || u.exists {
		return err
	}
	unlock, err := un.locks.Lock(ctx, "blob://"+u.download())
	if err != nil {
		return err
	}
	defer unlock()
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	turn, err := take(ctx, un.layers, un.Limits.Patience)
	if err != nil {
		return err
	}
	defer turn.end()
	u.turn = turn
	err = u.fill(ctx)
	for try := 1; errors.Is(err, download.ErrStale) && try <= maxFreshStarts; try++ {
		// Once more, from the first byte, into an empty snapshot.
		if err = errors.Join(u.dropSnapshot(ctx), un.Store.Downloads.Remove(u.download())); err == nil {
			if err = u.makeSnapshot(ctx); err == nil {
				err = u.fill(ctx)
			}
		}
	}
	if errors.Is(err, download.ErrStale) {
		err = fmt.Errorf("the registry sent a damaged layer again and again: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return fmt.Errorf("layer %s: %w", u.Desc.Digest, err)
	}
	u.track.state(u.i, LayerVerifying)
	return failpoint.Hit("image/layer/unpacked")
}

// makeSnapshot makes the snapshot to fill, or finds that the layer exists; then the pull's lease holds it from now on.
func (u *unpacking) makeSnapshot(ctx context.Context) error {
	key := store.UnpackKey + rand.Text()
	mounts, err := u.by.Store.Snapshots.Prepare(ctx, key, "", u.labels())
	if errdefs.IsAlreadyExists(err) {
		u.exists = true
		u.track.state(u.i, LayerExists)
		return nil
	}
	if err != nil {
		return fmt.Errorf("a snapshot for layer %s: %w", u.Desc.Digest, err)
	}
	u.key = key
	// A snapshot without a parent is a plain directory. Nothing is ever mounted: a process that is killed leaves none.
	if len(mounts) != 1 || mounts[0].Type != "bind" {
		return fmt.Errorf("a snapshot for layer %s: the snapshotter gives %v, not one directory: %w", u.Desc.Digest, mounts, errdefs.ErrInternal)
	}
	u.dir = mounts[0].Source
	return failpoint.Hit("image/layer/prepared")
}

func (u *unpacking) labels() snapshots.Opt {
	return snapshots.WithLabels(map[string]string{snapshots.LabelSnapshotRef: u.Chain, snapshots.LabelSnapshotDiffID: u.Diff.String()})
}

// fill brings the layer into the snapshot's directory. The error is download.ErrStale when it is worth another attempt.
func (u *unpacking) fill(ctx context.Context) error {
	here, err := u.by.Store.Content.ReaderAt(ctx, u.Desc)
	if err == nil { // an archive has brought it
		defer here.Close()
		u.track.state(u.i, LayerUnpacking)
		return u.apply(ctx, func() {}, content.NewReader(here))
	}
	if !errdefs.IsNotFound(err) {
		return err
	}
	if u.from == nil {
		return fmt.Errorf("it is not in the archive: %w", errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	file, err := u.by.Store.Downloads.Open(u.download())
	if err != nil {
		return err
	}
	b, err := download.New(file, u.Desc, u.by.Room, func(done int64) {
		u.track.bytes(u.i, done)
		u.turn.moved(ctx, done)
	})
	if err != nil {
		return err
	}
	u.track.state(u.i, LayerDownloading)
	u.turn.watch(b.Have())
	var fetching sync.WaitGroup
	fetching.Go(func() {
		if b.Fill(ctx, u.from) == nil {
			u.track.state(u.i, LayerUnpacking)
			u.turn.whole(ctx, u.Desc.Size)
		}
	})
	err = u.apply(ctx, cancel, b)
	cancel()
	fetching.Wait()
	return u.judge(err, b, b.Close())
}

// judge says what a failure means for the download.
func (u *unpacking) judge(err error, b *download.Layer, closing error) error {
	var wrong *digestError
	switch {
	case err == nil:
		return closing
	case errors.Is(err, download.ErrStale):
		return err
	case errors.As(err, &wrong) && b.BeginAnew(err):
		return fmt.Errorf("%w: %w", download.ErrStale, err)
	case errors.As(err, &wrong), errdefs.IsFailedPrecondition(err), errors.Is(err, download.ErrWrite):
		// Going on with these bytes would fail for ever; and on a full disk they are in the way.
		return errors.Join(err, u.by.Store.Downloads.Remove(u.download()))
	}
	return err
}

// digestError says that a layer's bytes are not those that its manifest means.
type digestError struct{ got digest.Digest }

func (e *digestError) Error() string {
	return fmt.Sprintf("the registry sent a damaged layer: its digest is %s", e.got)
}

func (*digestError) Unwrap() error { return errdefs.ErrFailedPrecondition }

// apply unpacks the compressed layer that src delivers, and compares the digests of what went in and what came out. Every
// stage works in a goroutine of its own: reading and the first digest, decompression, the second digest and the files.
// stop makes src end.
func (u *unpacking) apply(ctx context.Context, stop func(), src io.Reader) error {
	packed := u.Desc.Digest.Algorithm().Digester()
	in := decompress.NewReadAhead(io.TeeReader(faults.Source(src), packed.Hash()))
	defer func() {
		stop()
		in.Close()
	}()
	err := u.applyPlain(ctx, stop, in)
	if err != nil && !errdefs.IsInvalidArgument(err) {
		return err
	}
	// Also when it could not be unpacked: the digest says whether the layer is wrong, or only what came here.
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	if got := packed.Digest(); got != u.Desc.Digest {
		return &digestError{got: got}
	}
	return err
}

func (u *unpacking) applyPlain(ctx context.Context, stop func(), in io.Reader) (err error) {
	stream, end, err := decompress.Open(ctx, in, u.by.Windows)
	if err != nil {
		return err
	}
	defer end()
	ahead := decompress.NewReadAhead(stream)
	defer func() {
		if err != nil && !errdefs.IsInvalidArgument(err) {
			stop()
		}
		ahead.Close()
	}()
	// What Save makes the layer's tar of again reads along.
	rec, err := recipe.Create(recipe.Path(u.dir))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			rec.Abort()
		}
	}()
	plain := u.Diff.Algorithm().Digester()
	layer := io.TeeReader(u.meter.of(ahead), io.MultiWriter(plain.Hash(), rec))
	limits := u.by.Limits
	result, err := untar.Apply(ctx, u.dir, layer, untar.Options{MaxBytes: limits.LayerBytes, MaxEntries: limits.LayerEntries,
		MaxMemory: limits.LayerMemory, Room: u.by.Room.Check,
		Warn: func(msg string, args ...any) {
			u.by.Log.WarnContext(ctx, msg, append(args, "layer", u.Desc.Digest)...) //nolint:sloglint // it passes on what another part says
		}})
	if err == nil {
		err = decompress.Drain(layer)
	}
	if faults.OfSource(err) {
		return err
	}
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	if got := plain.Digest(); got != u.Diff {
		return fmt.Errorf("unpacked it has the digest %s, the image's configuration says %s: %w", got, u.Diff, errdefs.ErrInvalidArgument)
	}
	u.implied = result.Implied
	return rec.Close(u.Diff)
}

// commit makes the filled snapshot the layer on top of those below.
func (u *unpacking) commit(ctx context.Context, below []string) error {
	opts := []snapshots.Opt{u.labels()}
	if len(below) > 0 {
		opts = append(opts, snapshots.WithParent(below[len(below)-1]))
		if len(u.implied) > 0 {
			dirs, err := u.by.Store.Directories(ctx, below)
			if err != nil {
				return err
			}
			if err := untar.Inherit(u.dir, u.implied, dirs); err != nil {
				return err
			}
		}
	}
	err := u.by.Store.Snapshots.Commit(ctx, u.Chain, u.key, opts...)
	if errdefs.IsAlreadyExists(err) { // a pull from another registry was faster
		if err := errors.Join(u.dropSnapshot(ctx), u.makeSnapshot(ctx)); err != nil || u.exists {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("committing the snapshot: %w", err)
	}
	u.key = ""
	u.by.arrivals.tell(u.Chain)
	u.track.state(u.i, LayerDone)
	return failpoint.Hit("image/layer/committed")
}

func (u *unpacking) dropSnapshot(ctx context.Context) error {
	if u.key == "" {
		return nil
	}
	err := u.by.Store.Snapshots.Remove(ctx, u.key)
	if err == nil || errdefs.IsNotFound(err) {
		u.key = ""
		return nil
	}
	return err
}

// end gives back what the layer holds, once. What is not committed is dropped; of its download the next pull goes on.
func (u *unpacking) end(ctx context.Context, committed bool) {
	if u.ended {
		return
	}
	u.ended = true
	err := errors.Join(u.dropSnapshot(context.WithoutCancel(ctx)), u.by.Store.Downloads.Release(u.download(), committed))
	if u.unlock != nil {
		u.unlock()
	}
	if u.key != "" {
		u.by.Store.GiveBackLater(u.key)
	}
	if err != nil {
		u.by.Log.WarnContext(ctx, "cleaning up after a layer failed; it is done later", "layer", u.Desc.Digest, "error", err)
	}
}
