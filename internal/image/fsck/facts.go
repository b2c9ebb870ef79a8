package fsck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/image/store"
)

// facts are what a store's databases and directories say.
type facts struct {
	boot string
	now  time.Time

	// Of metadata.db.
	names   []images.Image
	leases  []lease
	blobs   map[digest.Digest]blobRecord
	ingests map[string]string // the name in content/ingest, by that in the metadata
	layers  map[string]layerRecord
	// Of overlay/metadata.db, by the key that metadata.db knows them by.
	snapshots map[string]snapshotRecord
	// broken are the databases that cannot be read; nothing is known of what they hold.
	broken []fsck.Finding

	// Of the directories.
	files     map[digest.Digest]blobFile
	transfers map[string]string    // directories in content/ingest, by the name of what is in them; "" is not used
	dirs      map[string]*layerDir // directories in overlay/snapshots, by the snapshotter's id
	downloads []download
	strays    []string // what is in these directories and should not be
}

type lease struct {
	id      string
	created time.Time
	store.Lease
	holds []leases.Resource
}

// blobRecord is a blob as the metadata knows it.
type blobRecord struct {
	size   int64
	labels map[string]string
}

// layerRecord is a snapshot as the metadata knows it.
type layerRecord struct {
	snapshot string // the key in the snapshotter's database
	parent   string // the name of the layer below, "" for none
	labels   map[string]string
}

// snapshotRecord is a snapshot as the snapshotter knows it.
type snapshotRecord struct {
	id     string // of its directory
	parent string // the key of the one below
	kind   snapshots.Kind
	inodes int64
}

// blobFile is a file of content/blobs.
type blobFile struct {
	size   int64
	actual digest.Digest // of what it holds
	raw    []byte        // what it holds, if it is a document
}

// layerDir is a directory of overlay/snapshots.
type layerDir struct {
	path   string
	files  bool   // it has the directory with the layer's files
	recipe recipe // of the layer's tar
	fault  string // what the deep check has found
}

type recipe struct {
	there  bool
	path   string
	digest digest.Digest // "" when it cannot be told
	fault  error
}

type download struct {
	path, boot string
	since      time.Time
}

// read collects the facts. Errors are those that make it impossible to tell anything: another process has the store open, or a
// directory cannot be read.
func read(ctx context.Context, o Options) (*facts, error) {
	f := &facts{boot: o.Boot, now: o.Now, blobs: map[digest.Digest]blobRecord{}, ingests: map[string]string{}, layers: map[string]layerRecord{},
		snapshots: map[string]snapshotRecord{}, files: map[digest.Digest]blobFile{}, transfers: map[string]string{}, dirs: map[string]*layerDir{}}
	meta := filepath.Join(o.Root, "metadata.db")
	if err := f.database(meta, "the names of the images", func(db viewOf) error { return f.readMetadata(ctx, db) }); err != nil {
		return nil, err
	}
	snaps := filepath.Join(o.Root, "overlay", "metadata.db")
	if err := f.database(snaps, "the layers", func(db viewOf) error { return db.View(f.readSnapshots) }); err != nil {
		return nil, err
	}
	if err := f.readDirectories(ctx, o.Root); err != nil {
		return nil, err
	}
	return f, nil
}

// viewOf is a transaction in the shape of a database, as containerd's packages take it. It cannot be written to.
type viewOf struct{ tx *bolt.Tx }

func (v viewOf) View(f func(*bolt.Tx) error) error { return f(v.tx) }

func (v viewOf) Update(func(*bolt.Tx) error) error {
	return fmt.Errorf("the check does not write: %w", errdefs.ErrFailedPrecondition)
}

// database reads one, if it is there and whole. holds says what is in it.
func (f *facts) database(path, holds string, view func(viewOf) error) error {
	err := fsck.ViewDatabase(path, func(tx *bolt.Tx) error { return view(viewOf{tx}) })
	if errdefs.IsNotFound(err) {
		return nil // a store that was never open; with directories in it they have no owner
	}
	if errdefs.IsDataLoss(err) {
		f.broken = append(f.broken, fsck.Damage("database", path, fsck.Said(err),
			"none: it holds "+holds+", and nothing else tells them; stop the containers, and remove the image store's directory: the images are pulled again", fsck.Fix{}))
		return nil
	}
	return err
}

func (f *facts) readMetadata(ctx context.Context, db viewOf) (err error) {
	ctx = namespaces.WithNamespace(ctx, store.Namespace)
	mdb := metadata.NewDB(db, nil, nil)
	if f.names, err = metadata.NewImageStore(mdb).List(ctx); err != nil {
		return fmt.Errorf("the names of the images: %w", err)
	}
	manager := metadata.NewLeaseManager(mdb)
	all, err := manager.List(ctx)
	if err != nil {
		return fmt.Errorf("the leases: %w", err)
	}
	for _, l := range all {
		holds, err := manager.ListResources(ctx, l)
		if err != nil {
			return fmt.Errorf("the lease %s: %w", l.ID, err)
		}
		f.leases = append(f.leases, lease{id: l.ID, created: l.CreatedAt, Lease: store.LeaseOf(l.Labels), holds: holds})
	}
	// The records themselves, not what the packages make of them together with the files: the layout is that of core/metadata,
	// which documents it (buckets.go).
	return db.View(func(tx *bolt.Tx) error {
		ns := within(tx.Bucket([]byte("v1")), store.Namespace)
		return errors.Join(
			each(within(ns, "content", "blob"), func(name string, b *bolt.Bucket) (err error) {
				rec := blobRecord{size: number(b, "size")}
				rec.labels, err = boltutil.ReadLabels(b)
				f.blobs[digest.Digest(name)] = rec
				return err
			}),
			each(within(ns, "content", "ingests"), func(name string, b *bolt.Bucket) error {
				f.ingests[name] = string(b.Get([]byte("ref")))
				return nil
			}),
			each(within(ns, "snapshots", store.Snapshotter), func(name string, b *bolt.Bucket) (err error) {
				rec := layerRecord{snapshot: string(b.Get([]byte("name"))), parent: string(b.Get([]byte("parent")))}
				rec.labels, err = boltutil.ReadLabels(b)
				f.layers[name] = rec
				return err
			}))
	})
}

// readSnapshots reads the snapshotter's own records (core/snapshots/storage).
func (f *facts) readSnapshots(tx *bolt.Tx) error {
	return each(within(tx.Bucket([]byte("v1")), "snapshots"), func(name string, b *bolt.Bucket) error {
		id, _ := binary.Uvarint(b.Get([]byte("id")))
		rec := snapshotRecord{id: fmt.Sprint(id), parent: string(b.Get([]byte("parent"))), inodes: number(b, "inodes")}
		if k := b.Get([]byte("kind")); len(k) == 1 {
			rec.kind = snapshots.Kind(k[0])
		}
		f.snapshots[name] = rec
		return nil
	})
}

// within is a bucket in buckets, or nil.
func within(b *bolt.Bucket, names ...string) *bolt.Bucket {
	for _, n := range names {
		if b == nil {
			return nil
		}
		b = b.Bucket([]byte(n))
	}
	return b
}

// each calls do with each bucket in b.
func each(b *bolt.Bucket, do func(name string, b *bolt.Bucket) error) error {
	if b == nil {
		return nil
	}
	return b.ForEachBucket(func(k []byte) error { return do(string(k), b.Bucket(k)) })
}

func number(b *bolt.Bucket, key string) int64 {
	n, _ := binary.Varint(b.Get([]byte(key)))
	return n
}

// list reads a directory; one that is not there has none.
func list(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}
