package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// RemoteConfig says where an etcd is that runs by itself.
type RemoteConfig struct {
	// Servers are the URLs of its members.
	Servers []string
	// CAFile is the authority of the members' certificates, CertFile and KeyFile are those of this client, PEM; empty: that of the host, and none.
	CAFile, CertFile, KeyFile string
	Log                       *slog.Logger
}

const (
	// answerTime is how long an etcd may take to answer at the start.
	answerTime = 30 * time.Second
	// aliveInterval and aliveTime: a member that has gone without a word is noticed after their sum.
	aliveInterval, aliveTime = 30 * time.Second, 10 * time.Second
)

// Remote is a client of an etcd that runs by itself. What this package promises of room and of reads is that etcd's to keep: its quota, its compaction where
// the API server's own is not enough, its backups.
type Remote struct {
	client *clientv3.Client
	closed chan struct{}
	once   sync.Once
}

// Connect returns when an etcd answers.
func Connect(ctx context.Context, cfg RemoteConfig) (*Remote, error) {
	config := clientv3.Config{
		Endpoints: cfg.Servers, DialKeepAliveTime: aliveInterval, DialKeepAliveTimeout: aliveTime, Logger: zap.New(newCore(cfg.Log)),
		Context: context.WithoutCancel(ctx), // until Close
	}
	at := strings.Join(cfg.Servers, ",")
	if cfg.CAFile != "" || cfg.CertFile != "" || strings.Contains(at, "https://") {
		files := transport.TLSInfo{TrustedCAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile}
		var err error
		if config.TLS, err = files.ClientConfig(); err != nil {
			return nil, fmt.Errorf("etcd at %s: its certificates: %w", at, err)
		}
		config.TLS.MinVersion = tls.VersionTLS12
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", at, err)
	}
	asking, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := client.Get(asking, "/registry/health"); err != nil {
		err = errors.Join(err, client.Close())
		return nil, fmt.Errorf("etcd at %s does not answer within %v: %w; apiServer.etcd must name an etcd that runs, and certificates that it takes", at, answerTime, err)
	}
	return &Remote{client: client, closed: make(chan struct{})}, nil
}

// Client is a client of the store. It is closed by Close.
func (r *Remote) Client() *clientv3.Client { return r.client }

// Wait returns after Close. An etcd that has gone is waited for: requests fail meanwhile.
func (r *Remote) Wait() error {
	<-r.closed
	return nil
}

// Close ends the client. It may be called more than once.
func (r *Remote) Close() {
	r.once.Do(func() {
		_ = r.client.Close() // its error says that streams were cut, which is what is wanted
		close(r.closed)
	})
}

// ErrOthers: the store belongs to others.
var ErrOthers = errors.New("it belongs to other API servers")

// Claim notes whose the store is, when nobody has, or holds it against what is noted: owner is the same for all who share it.
func (r *Remote) Claim(ctx context.Context, owner string) error {
	const key = "/monopod/owner"
	done, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, owner)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("etcd: whose it is: %w", err)
	}
	if done.Succeeded {
		return nil
	}
	if kvs := done.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 && string(kvs[0].Value) != owner {
		return fmt.Errorf("%w (%s)", ErrOthers, kvs[0].Value)
	}
	return nil
}

// heldTime bounds how long a lock is held: that of whoever is gone falls after lockSeconds.
const (
	heldTime    = time.Minute
	lockSeconds = 10
)

// Exclusively returns when nobody else has the lock of that name, of all who share the store. Whoever has it calls release in the end, in less than a minute.
func (r *Remote) Exclusively(ctx context.Context, name string) (release func(), err error) {
	held, cancel := context.WithTimeout(context.WithoutCancel(ctx), heldTime)
	session, err := concurrency.NewSession(r.client, concurrency.WithTTL(lockSeconds), concurrency.WithContext(held))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("etcd: lock %s: %w", name, err)
	}
	release = func() {
		defer cancel()
		_ = session.Close() // else it falls by itself
	}
	if err := concurrency.NewMutex(session, "/monopod/lock/"+name).Lock(ctx); err != nil {
		release()
		return nil, fmt.Errorf("etcd: lock %s: %w", name, err)
	}
	return release, nil
}
