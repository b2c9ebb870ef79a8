package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image/faults"
)

// checkOverlay says whether dir can hold the layers of an overlay, by making one. It is never attached to the tree of
// mounts, so a process that is killed here leaves none.
func checkOverlay(dir string) (err error) {
	probe := filepath.Join(dir, "probe")
	defer func() { err = errors.Join(err, os.RemoveAll(probe)) }()
	for _, d := range []string{"lower1", "lower2", "upper", "work"} {
		if err := os.MkdirAll(filepath.Join(probe, d), 0o700); err != nil {
			return err
		}
	}
	// By its descriptor: the kernel takes options of 255 bytes at most, colons separate layers, and kernels before 6.5 take no commas.
	f, err := os.OpenFile(probe, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen overlay: %w", err)
	}
	defer unix.Close(fs)
	at := func(d string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), d) }
	for _, opt := range [][2]string{
		{"source", "overlay"}, {"lowerdir", at("lower1") + ":" + at("lower2")}, {"upperdir", at("upper")}, {"workdir", at("work")},
	} {
		if err := unix.FsconfigSetString(fs, opt[0], opt[1]); err != nil {
			return fmt.Errorf("overlay option %s: %w", opt[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("making an overlay there: %w", err)
	}
	return nil
}

// sweep removes what a killed process had made in the stores of blobs and layers, but not written down in the
// metadata. A disk that is full keeps no store from opening: removing images is the way out of it.
func (g *garbage) sweep(ctx context.Context) error {
	err := g.sweepAll(ctx)
	if errdefs.IsResourceExhausted(err) {
		g.log.ErrorContext(ctx, "the disk of the image store is full; what killed pulls have left is removed at the next start with room", "store", g.root, "error", err)
		return nil
	}
	return err
}

// sweepAll: the metadata looks for what it does not know only in a collection that removes something of its own; so it is given
// something to remove.
func (g *garbage) sweepAll(ctx context.Context) error {
	const bait = "sweep"
	if err := g.sweepUnpacks(ctx); err != nil {
		return fmt.Errorf("sweeping half unpacked layers: %w", faults.NoRoom(err))
	}
	if _, err := g.snaps.Prepare(ctx, bait, ""); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("sweeping the layers: %w", faults.NoRoom(err))
	}
	desc := ocispec.Descriptor{Digest: digest.FromString(bait), Size: int64(len(bait))}
	if err := content.WriteBlob(ctx, g.content, bait, strings.NewReader(bait), desc); err != nil {
		return fmt.Errorf("sweeping the blobs: %w", faults.NoRoom(err))
	}
	return g.collect(ctx)
}

// sweepUnpacks removes the snapshots that a killed process was filling: nobody will finish them. The lease of the pull
// would hold them as long as what is worth to be gone on with.
//
// The metadata's own records are read, since a snapshot that was killed between the two steps of its commit is known to the
// snapshotter by another key already.
func (g *garbage) sweepUnpacks(ctx context.Context) error {
	var half []string
	if err := g.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("v1")) // the layout is that of core/metadata, which documents it (buckets.go)
		for _, name := range []string{Namespace, "snapshots", Snapshotter} {
			if b != nil {
				b = b.Bucket([]byte(name))
			}
		}
		if b == nil {
			return nil
		}
		return b.ForEachBucket(func(key []byte) error {
			if bytes.HasPrefix(key, []byte(UnpackKey)) {
				half = append(half, string(key))
			}
			return nil
		})
	}); err != nil {
		return err
	}
	for _, key := range half {
		if err := g.snaps.Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// sweepDirectories removes directories that a killed process had made for a snapshot, but not written down: they would
// be in the way of the next snapshot of that number.
func sweepDirectories(ctx context.Context, snaps snapshots.Snapshotter, layers string) error {
	cleaner, ok := snaps.(snapshots.Cleaner)
	if !ok {
		return nil
	}
	err := cleaner.Cleanup(ctx)
	if !errdefs.IsNotFound(err) {
		return err
	}
	// It has not written down any snapshot yet.
	dir := filepath.Join(layers, "snapshots")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// sweepIngests removes downloads that were killed before they had a name. It must run before the store is open.
func sweepIngests(root string) error {
	dir := filepath.Join(root, "content", "ingest")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fi, err := os.Stat(filepath.Join(dir, e.Name(), "ref")); err == nil && fi.Size() > 0 {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
