// Package apiserver is the role apiserver: the Kubernetes API of one Monopod, made of k8s.io/apiserver on an embedded
// etcd.
//
// It guarantees:
//   - all its durable state is etcd's and the certificates' (DataDir/etcd, DataDir/pki): a server that starts on the data
//     of another, however that one ended, continues it;
//   - nobody without credentials gets any answer but 401, other than from /healthz, /livez, /readyz and /version, or holds the port;
//   - when Run returns, etcd is closed and nothing of the server is left but its files.
//
// It reaches pods only through the HTTPS API of the agent of their node.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"monopod.dev/monopod/internal/apiserver/encryption"
	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/apiserver/registry/service"
	"monopod.dev/monopod/internal/apiserver/snapshot"
	"monopod.dev/monopod/internal/apiserver/tokens"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/kit/preauth"
)

// Config says how to serve.
type Config struct {
	// DataDir holds etcd/ and pki/, RunDir the socket of etcd.
	DataDir, RunDir string
	// BindAddress is the address to listen on; Port 0 is a free one.
	BindAddress string
	Port        int
	// ServiceCIDRs are the ranges of services' addresses, at most one of each family; none: DefaultServiceCIDR.
	ServiceCIDRs []netip.Prefix
	// DNS are the addresses of the cluster's DNS, of these ranges; none: this process serves none.
	DNS []netip.Addr
	// CertSANs are more names and addresses for which the serving certificate is good.
	CertSANs []string
	// AdvertiseAddress is where pods reach the API: the endpoint of the service kubernetes. The zero Addr: it is BindAddress, or what Extend is told.
	AdvertiseAddress netip.Addr
	// Kubeconfig is the file to which the administrator's credentials are written, with mode 0600; empty: none is.
	Kubeconfig string
	// TokenAuthFile lists bearer tokens: CSV lines of token,user,uid,"group1,group2". Empty: no tokens.
	TokenAuthFile string
	// EncryptionConfigFile says how objects are encrypted in the store (apiserver.config.k8s.io/v1, EncryptionConfiguration). Empty: secrets are, with a
	// key that is made at the first start and kept in DataDir/pki.
	EncryptionConfigFile string
	// Audit says what is written down of who did what.
	Audit Audit
	// AllowedOrigins are the origins, beside the API server's own, whose pages may open WebSockets: "https://console.example.com".
	AllowedOrigins []string
	// TokenIssuers are the issuers of service account tokens (see tokens.Config); none: tokens.DefaultIssuer. MaxTokenLife is how long such a token is
	// good for at most; 0: as long as was asked for.
	TokenIssuers []string
	MaxTokenLife time.Duration
	// Etcd is an etcd that runs by itself, which other API servers may have, too; without servers there is one in this process. All who share it have the
	// same authority and keys in DataDir/pki: ca.crt, ca.key, sa-*, encryption.yaml.
	Etcd etcd.RemoteConfig
	// EtcdTick is etcd's heartbeat (see etcd.Config).
	EtcdTick time.Duration
	// EtcdQuota bounds what objects take, in bytes (see etcd.Config); 0: the default.
	EtcdQuota int64
	// NodeName is the node whose agent gets credentials, NodeAddresses are the names and addresses of that node.
	NodeName      string
	NodeAddresses []string
	// Timeline remembers when pods were made and bound; nil: nobody does.
	Timeline *podstarts.Recorder
	// Strangers bounds who connects and does not authenticate.
	Strangers preauth.Limits
	Log       *slog.Logger
}

// shared: other API servers may have the store, too.
func (c *Config) shared() bool { return len(c.Etcd.Servers) > 0 }

// DefaultServiceCIDR is the range of services' addresses where none is configured.
var DefaultServiceCIDR = netip.MustParsePrefix("10.43.0.0/16")

// The range of services' node ports.
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// objects is the etcd that the API's objects are in.
type objects interface {
	// Client is closed by Close.
	Client() *clientv3.Client
	// Wait returns when it has ended: nil after Close, and else why.
	Wait() error
	Close()
}

// Server is an API server.
type Server struct {
	*Access
	cfg      Config
	listener *listener
	etcd     objects
	// ranges are those of services' addresses. serviceLock is that of all who give out the same node ports; nil: nobody else does.
	ranges      service.Ranges
	serviceLock func(context.Context) (unlock func(), err error)
	tokenKeys   *tokens.Keys
	// encryption is what secrets are stored with.
	encryption *encryption.Encryption
	// resources are what is served, by generic.
	resources *resources
	generic   *genericapiserver.GenericAPIServer
	// serving is closed when requests are accepted, ready when they can all be answered, drained when, at the end, all
	// have been.
	serving, ready chan struct{}
	drained        <-chan struct{}

	mu sync.Mutex
	// closing is closed by Close; ended is non-nil from Run's begin and closed at its end.
	closing, ended chan struct{}
	released       bool
}

// New prepares a server: its port is open, its certificates are made where they are missing, its etcd runs. Nothing is
// answered before Run. Whoever does not call Run calls Close.
func New(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, serving: make(chan struct{}), ready: make(chan struct{}), closing: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if len(s.cfg.ServiceCIDRs) == 0 {
		s.cfg.ServiceCIDRs = []netip.Prefix{DefaultServiceCIDR}
	}
	if s.ranges, err = service.NewRanges(s.cfg.ServiceCIDRs); err != nil {
		return nil, err
	}
	if s.listener, err = listen(ctx, cfg.BindAddress, cfg.Port, cfg.Strangers); err != nil {
		return nil, err
	}
	s.Access = newAccess(s.cfg, s.Port(), s.ranges.First())
	if err := s.startStore(ctx); err != nil {
		return nil, err
	}
	if s.encryption, err = encryption.Open(ctx, s.keys(), cfg.EncryptionConfigFile); err != nil {
		return nil, err
	}
	if s.resources, err = openResources(resourcesConfig{
		Config: s.cfg, Etcd: s.etcd, Encryption: s.encryption, PKI: s.pki, TokenKeys: s.tokenKeys, Ranges: s.ranges, ServiceLock: s.serviceLock,
	}); err != nil {
		return nil, err
	}
	if err := s.build(); err != nil {
		return nil, err
	}
	return s, nil
}

// startStore makes the certificates and starts etcd, at once: the one waits for the disk, the other for its clock.
func (s *Server) startStore(ctx context.Context) error {
	aside, err := snapshot.Finish(s.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("finish the restoration of a snapshot: %w", err)
	}
	if aside != "" {
		s.cfg.Log.Info("a snapshot was restored", "before", aside)
	}
	certificates := make(chan error, 1)
	go func() {
		err := s.issue()
		if err == nil {
			err = s.openTokenKeys()
		}
		certificates <- err
	}()
	if s.cfg.shared() {
		return s.join(ctx, certificates)
	}
	e, err := etcd.Start(ctx, etcd.Config{
		DataDir:   filepath.Join(s.cfg.DataDir, "etcd"),
		SocketDir: filepath.Join(s.cfg.RunDir, "etcd"),
		Tick:      s.cfg.EtcdTick,
		Quota:     s.cfg.EtcdQuota,
		Log:       s.cfg.Log,
	})
	if err == nil {
		s.etcd = e
	}
	return errors.Join(<-certificates, err)
}

// openTokenKeys reads the keys of service account tokens, which are made at the first start.
func (s *Server) openTokenKeys() (err error) {
	var made string
	if s.tokenKeys, made, err = tokens.EnsureKeys(s.keys()); made != "" {
		s.cfg.Log.Info("key of service account tokens made", "file", made)
	}
	return err
}

// IssueForSecret makes the token of a service account that a secret holds. It has no end, and is good while the secret holds it.
func (s *Server) IssueForSecret(namespace, account string, uid types.UID, secret string) (string, error) {
	return s.resources.tokens.IssueForSecret(namespace, tokens.Ref{Name: account, UID: uid}, secret)
}

// Ready is closed when the API answers all requests: the caches are filled, the system's objects and roles exist and the
// administrator's kubeconfig is written.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Port is the port that the API is served on.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Run serves until ctx ends, Close is called or the server cannot go on. It returns nil after an orderly end. It is called
// once.
func (s *Server) Run(ctx context.Context) (err error) {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	defer func() { err = errors.Join(err, s.release()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var tasks sync.WaitGroup
	task := func(f func(context.Context) error) {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			if err := f(ctx); err != nil {
				cancel(err)
			}
		}()
	}
	served := make(chan struct{})
	task(func(ctx context.Context) error {
		defer close(served)
		return s.generic.PrepareRun().RunWithContext(ctx)
	})
	task(func(ctx context.Context) error {
		s.hangUp(ctx, served)
		return nil
	})
	task(func(ctx context.Context) error {
		if !await(ctx, s.serving) {
			return nil
		}
		if err := s.becomeReady(ctx); err != nil {
			return err
		}
		if err := encryptAnew(ctx, s.resources.store, s.encryption, s.cfg.Log); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("not all objects are encrypted as configured; trying again at the next start", "configuration", s.encryption.File(), "error", err)
		}
		return nil
	})
	task(func(ctx context.Context) error { return s.resources.authorize(ctx, s.cfg.Log) })
	task(func(ctx context.Context) error {
		s.resources.services.Run(ctx)
		return nil
	})
	if !s.cfg.shared() {
		task(func(ctx context.Context) error { return s.KeepOwn(ctx, func() bool { return true }) })
	}
	task(s.renewCertificates)
	stopped := make(chan error, 1)
	go func() { stopped <- s.etcd.Wait() }()
	select {
	case <-ctx.Done():
	case <-s.closing:
		cancel(nil)
	case err := <-stopped:
		cancel(err)
	}
	tasks.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// becomeReady does what has to be done before all requests can be answered.
func (s *Server) becomeReady(ctx context.Context) error {
	if err := s.resources.store.Wait(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	if err := s.resources.makeSystem(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	if err := s.own().Ensure(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	if !await(ctx, s.resources.policy.Synced()) {
		return nil
	}
	if err := s.writeKubeconfig(*s.admin.Load()); err != nil {
		return err
	}
	s.cfg.Log.Info("the Kubernetes API is ready", "url", s.url(), "kubeconfig", s.cfg.Kubeconfig)
	close(s.ready)
	return nil
}

// flushGrace is what connections get to send what their handlers have written.
const flushGrace = 50 * time.Millisecond

// hangUp cuts the connections at the server's end, as soon as all requests have been answered and all watches told: the
// HTTP server would wait another second or two for clients to hang up, whose connections are idle then.
func (s *Server) hangUp(ctx context.Context, served <-chan struct{}) {
	<-ctx.Done()
	select {
	case <-served: // it could not be served at all
		return
	case <-s.drained: // the library bounds its wait
	}
	time.Sleep(flushGrace) //nolint:forbidigo // handlers tell nobody when the last of their bytes has gone
	s.listener.cut()
}

// ignoreEnd is for errors of what is cut off when the server is told to end.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin notes that Run has begun; end, that it has ended.
func (s *Server) begin() (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.released {
		return nil, errors.New("an API server runs once")
	}
	s.ended = make(chan struct{})
	return func() { close(s.ended) }, nil
}

// Close ends a server, whether it runs or not, and returns when it has ended. It may be called more than once.
func (s *Server) Close() error {
	s.mu.Lock()
	select {
	case <-s.closing:
	default:
		close(s.closing)
	}
	ended := s.ended
	s.mu.Unlock()
	if ended != nil {
		<-ended // Run releases everything, and returns what went wrong
		return nil
	}
	return s.release()
}

// release cuts all connections and closes the store, once. Everything that was answered is stored.
func (s *Server) release() error {
	s.mu.Lock()
	released := s.released
	s.released = true
	s.mu.Unlock()
	if released {
		return nil
	}
	var err error
	if s.listener != nil {
		err = s.listener.closeAll()
	}
	switch {
	case s.generic != nil:
		s.generic.Destroy() // and the storages
	case s.resources != nil:
		s.resources.storages.Close()
	}
	if s.resources != nil {
		s.resources.store.Close()
	}
	if s.etcd != nil {
		s.etcd.Close()
	}
	return err
}

func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen opens the API's port.
func listen(ctx context.Context, address string, port int, strangers preauth.Limits) (*listener, error) {
	at := net.JoinHostPort(address, strconv.Itoa(port))
	l, err := (&net.ListenConfig{KeepAlive: 3 * time.Minute}).Listen(ctx, "tcp", at)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the Kubernetes API cannot be served on %s: another process uses the port; stop it or choose another port: %w", at, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("the Kubernetes API cannot be served on %s: this host has no such address; choose one that it has: %w", at, err)
	case err != nil:
		return nil, fmt.Errorf("the Kubernetes API cannot be served on %s: %w", at, err)
	}
	all := newMany(l)
	return &listener{Listener: preauth.New(all, strangers), many: all, conns: map[net.Conn]bool{}}, nil
}
