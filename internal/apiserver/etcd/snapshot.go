package etcd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Stream is a snapshot of a running etcd as it comes: its database at one moment, and 32 bytes of its SHA-256. It is what etcdctl snapshot
// save writes.
type Stream struct {
	io.Reader
	// Revision is one that is in the snapshot; there may be later ones.
	Revision int64
	// Version is that of etcd's storage, such as 3.7.0; of a new one, that of etcd.
	Version string
	// Size is about how long it is, in bytes.
	Size int64

	body   io.Closer
	client *clientv3.Client
}

// statusTime bounds how long an etcd may take to say how it is; it is of this host.
const statusTime = 30 * time.Second

// Snapshot asks the etcd with the socket in socketDir for a snapshot. It goes over etcd's own socket, because that is there whichever roles a
// process has, and because etcd's protocol for it is the one that other tools know.
func Snapshot(ctx context.Context, socketDir string) (_ *Stream, err error) {
	socket := filepath.Join(socketDir, "etcd.sock")
	// etcd's client would try again and again, and not say why.
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("no API server runs with this run directory that has an etcd in it: start it, or name its --run-dir; of one with --etcd-servers etcdctl makes the snapshots: %w", err)
	}
	_ = c.Close() // nothing was sent
	client, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", socket, err)
	}
	defer func() {
		if err != nil {
			_ = client.Close() // the first error tells more
		}
	}()
	short, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	status, err := client.Status(short, client.Endpoints()[0])
	if err != nil {
		return nil, fmt.Errorf("ask etcd at %s how it is: %w", socket, err)
	}
	s, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask etcd at %s for a snapshot: %w", socket, err)
	}
	return &Stream{Reader: s.Snapshot, Revision: status.Header.GetRevision(), Version: cmp.Or(s.Version, status.Version), Size: status.DbSize, body: s.Snapshot, client: client}, nil
}

// Close ends the stream.
func (s *Stream) Close() error {
	_ = s.body.Close() // it is read to its end, or given up
	return s.client.Close()
}

// revisionBump is by how much a restored store's revisions begin after those of its snapshot. It is more than a store writes between a
// snapshot and the day when it is lost, so that no revision means two things.
const revisionBump = 1e9

// Restore makes a data directory of the file of a snapshot. dir must not be there, or be empty. Its revisions are later than all that clients
// have seen, and all up to them count as compacted, so that who watches from one of them is told to list anew.
func Restore(file, dir string, log *slog.Logger) (err error) {
	// The library, and bbolt below it, panic when a file is not what they expect, or fault where a page refers to another one that the file
	// does not have.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the database in the snapshot is damaged: %v", r)
		}
	}()
	if err := checkPages(file); err != nil {
		return err
	}
	ec := embed.NewConfig() // what embedConfig leaves as it is, too
	ec.InitialCluster = ec.InitialClusterFromName(memberName)
	peers := make([]string, 0, len(ec.AdvertisePeerUrls))
	for _, u := range ec.AdvertisePeerUrls {
		peers = append(peers, u.String())
	}
	err = snapshot.NewV3(zap.New(newCore(log))).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: memberName, PeerURLs: peers, InitialCluster: ec.InitialCluster,
		InitialClusterToken: ec.InitialClusterToken, RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("the database in the snapshot is damaged: %w", err)
	}
	return nil
}

// checkPages reads every page of a database that holds anything.
func checkPages(file string) error {
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("the database in the snapshot is damaged: %w", err)
	}
	defer db.Close()
	// bbolt's own check panics in a goroutine of its own.
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			return b.ForEach(func(_, _ []byte) error { return nil })
		})
	})
	if err != nil {
		return fmt.Errorf("the database in the snapshot is damaged: %w", err)
	}
	return nil
}

// Lock takes the lock of a data directory that is there, so that no etcd can be started on it until unlock is called. An etcd that runs is
// an error.
func Lock(dir string) (unlock func(), err error) {
	f, err := lockData(dir)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}
