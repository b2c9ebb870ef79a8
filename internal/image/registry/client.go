package registry

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
)

import ()

// Config says how registries are reached.
type Config struct {
	// HostsDir holds HOST/hosts.toml files in containerd's format; empty, or a directory that does not exist: every registry by its own
	// name over HTTPS, loopback ones over HTTP too.
	HostsDir string
	// StallTimeout ends a pull whose host delivers no byte for so long; 0 is one minute, less than 0 never.
	StallTimeout time.Duration
	// RetryDelay is how long the first wait before another attempt is; each further one is twice as long, unless the registry names one.
	// 0 is half a second.
	RetryDelay time.Duration
}

// defaultStallTimeout is how long a download may stand still before the pull fails.
const defaultStallTimeout = time.Minute

// Client reaches registries as a node's configuration says. It keeps nothing between two sessions.
type Client struct {
	hosts        hostsConfig
	stallTimeout time.Duration
	retryDelay   time.Duration
}

// New makes a client.
func New(cfg Config) *Client {
	return &Client{hosts: hostsConfig{dir: cfg.HostsDir}, stallTimeout: cmp.Or(cfg.StallTimeout, defaultStallTimeout),
		retryDelay: cmp.Or(cfg.RetryDelay, defaultRetryDelay)}
}

// Session prepares a pull of what a reference names; no host is asked yet. auth may be nil. cancel ends the pull when it stalls. Close must
// be called at the end.
func (c *Client) Session(ctx context.Context, named reference.Named, auth *Auth, cancel context.CancelCauseFunc) *Session {
	rs := &Session{ref: named.String(), registry: reference.Domain(named), auth: auth, stall: c.stallTimeout, retryDelay: c.retryDelay, cancel: cancel,
		followed: map[string]bool{}, distrusted: map[string]error{}}
	configured := config.ConfigureHosts(ctx, config.HostOptions{HostDir: c.hosts.hostDir, UpdateClient: rs.prepareClient})
	// The hosts are made once: what comes later uses the connections and the tokens of what came before.
	rs.hosts = sync.OnceValues(func() ([]docker.RegistryHost, error) { return rs.prepareHosts(configured) })
	rs.resolver = docker.NewResolver(docker.ResolverOptions{
		Headers: http.Header{"User-Agent": {"monopod"}},
		Hosts:   func(string) ([]docker.RegistryHost, error) { return rs.hosts() },
	})
	rs.fetcher = sync.OnceValues(func() (remotes.Fetcher, error) { return rs.resolver.Fetcher(ctx, rs.ref) })
	return rs
}

// prepareHosts makes of the configured hosts those that this pull asks, in their order.
func (rs *Session) prepareHosts(configured docker.RegistryHosts) ([]docker.RegistryHost, error) {
	hosts, err := configured(rs.registry)
	if err != nil {
		if errdefs.Resolve(err) == errdefs.ErrUnknown {
			err = fmt.Errorf("registry configuration of %s: %w: %w", rs.registry, err, errdefs.ErrInvalidArgument)
		}
		return nil, err
	}
	// containerd's fetcher asks every host for layers.
	hosts = slices.DeleteFunc(hosts, func(h docker.RegistryHost) bool { return !h.Capabilities.Has(docker.HostCapabilityPull) })
	if len(hosts) == 0 {
		return nil, fmt.Errorf("registry configuration of %s: no host has the capability \"pull\": %w", rs.registry, errdefs.ErrInvalidArgument)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := range hosts {
		h := &hosts[i]
		rs.followed[h.Host] = i < len(hosts)-1
		own := http.Header{}
		for name, values := range h.Header {
			own[http.CanonicalHeaderKey(name)] = values
		}
		h.Header = own
		h.Authorizer = rs.authorizer(*h)
	}
	return hosts, nil
}

// prepareClient is config.HostOptions.UpdateClient. It sees some clients twice.
func (rs *Session) prepareClient(c *http.Client) error {
	if _, done := c.Transport.(*retryTransport); done {
		return nil
	}
	if t, ok := c.Transport.(*http.Transport); ok {
		t.MaxResponseHeaderBytes = maxHeader
		t.ResponseHeaderTimeout = 0 // watchedTransport sees to it
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.transports = append(rs.transports, c.Transport)
	// Token servers are asked by this client too.
	c.Transport = &retryTransport{session: rs, next: &watchedTransport{session: rs, next: c.Transport}}
	return nil
}
