package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
)

// hostsConfig finds the hosts that serve a registry, from hosts.toml files.
type hostsConfig struct{ dir string }

// hostDir is config.HostOptions.HostDir: the folder with a host's configuration. A hosts.toml that cannot be
// understood is an error here; containerd's package would only log it and go on without the mirrors.
func (h hostsConfig) hostDir(host string) (string, error) {
	if h.dir == "" {
		return "", errdefs.ErrNotFound
	}
	dir, err := config.HostDirFromRoot(h.dir)(host)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hosts.toml")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return dir, nil // certificates only
	}
	if err != nil {
		return "", err
	}
	if err := checkHostsFile(raw); err != nil {
		return "", fmt.Errorf("registry configuration %s: %w: %w", path, err, errdefs.ErrInvalidArgument)
	}
	return dir, nil
}

// hostEntry holds the keys of hosts.toml that can be wrong in a way the toml parser does not see.
type hostEntry struct {
	Capabilities []string `toml:"capabilities"`
	DialTimeout  string   `toml:"dial_timeout"`
}

func (e hostEntry) check() error {
	for _, c := range e.Capabilities {
		if !slices.Contains([]string{"pull", "resolve", "push", "referrers"}, strings.ToLower(c)) {
			return fmt.Errorf("unknown capability %q, known are pull, resolve, push and referrers", c)
		}
	}
	if e.DialTimeout != "" {
		if _, err := time.ParseDuration(e.DialTimeout); err != nil {
			return fmt.Errorf("dial_timeout: %w", err)
		}
	}
	return nil
}

// checkHostsFile reads a hosts.toml as far as to find what is wrong with it.
func checkHostsFile(raw []byte) error {
	var file struct {
		hostEntry
		Server string               `toml:"server"`
		Host   map[string]hostEntry `toml:"host"`
	}
	if err := toml.Unmarshal(raw, &file); err != nil {
		return err
	}
	if err := errors.Join(checkHostURL(file.Server), file.check()); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	for host, e := range file.Host {
		if err := errors.Join(checkHostURL(host), e.check()); err != nil {
			return fmt.Errorf("host %q: %w", host, err)
		}
	}
	return nil
}

func checkHostURL(host string) error {
	if host == "" {
		return nil
	}
	if !strings.HasPrefix(host, "http") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err == nil && u.Host == "" {
		err = fmt.Errorf("%q has no host", host)
	}
	return err
}

// registrySession is one pull's way to registries. It remembers what each host said, so that an error can name them
// all, and it ends a download that stands still.
type registrySession struct {
	resolver remotes.Resolver

	stall      time.Duration
	retryDelay time.Duration
	cancel     context.CancelCauseFunc // ends the pull

	mu         sync.Mutex
	tried      []attempt
	transports []http.RoundTripper // the innermost ones, which hold the connections
	followed   map[string]bool     // hosts after which another one is asked
}

// attempt is the last thing that a host did.
type attempt struct {
	host   string
	url    string // scheme and host
	answer string
	ok     bool
}

// newSession prepares a pull from the registry that a reference names. cancel ends the pull when it stalls.
func (s *Store) newSession(ctx context.Context, registry string, auth *Auth, cancel context.CancelCauseFunc) *registrySession {
	rs := &registrySession{stall: s.stallTimeout, retryDelay: s.retryDelay, cancel: cancel}
	opts := config.HostOptions{HostDir: s.hosts.hostDir, UpdateClient: func(c *http.Client) error {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.transports = append(rs.transports, c.Transport)
		// Token servers are asked by this client too.
		c.Transport = &retryTransport{session: rs, next: &watchedTransport{session: rs, next: c.Transport}}
		return nil
	}}
	if auth != nil {
		opts.Credentials = func(host string) (string, string, error) {
			if !auth.appliesTo(host, registry) {
				return "", "", nil
			}
			return auth.basic()
		}
	}
	configured := config.ConfigureHosts(ctx, opts)
	rs.resolver = docker.NewResolver(docker.ResolverOptions{
		Headers: http.Header{"User-Agent": {"monopod"}},
		Hosts: func(name string) ([]docker.RegistryHost, error) {
			hosts, err := configured(name)
			followed := map[string]bool{}
			for i := range hosts {
				followed[hosts[i].Host] = i < len(hosts)-1
				if auth != nil && auth.RegistryToken != "" {
					hosts[i].Authorizer = bearer{auth: auth, registry: registry}
				}
			}
			rs.mu.Lock()
			rs.followed = followed
			rs.mu.Unlock()
			return hosts, err
		},
	})
	return rs
}

// close gives the session's connections back. Each session has its own, because credentials and hosts.toml may differ.
func (rs *registrySession) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, t := range rs.transports {
		if c, ok := t.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// lastResort says whether no other host is asked when this one fails.
func (rs *registrySession) lastResort(host string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return !rs.followed[host]
}

// explain adds to an error what each host answered, when any of them did not do as it was asked.
func (rs *registrySession) explain(err error) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if strings.Contains(err.Error(), "\n") {
		err = &oneLine{err}
	}
	if !slices.ContainsFunc(rs.tried, func(a attempt) bool { return !a.ok }) {
		return err
	}
	said := make([]string, len(rs.tried))
	for i, a := range rs.tried {
		said[i] = a.url + " (" + a.answer + ")"
	}
	return fmt.Errorf("%w; tried: %s", err, strings.Join(said, ", "))
}

// oneLine is an error as one line: events and logs of a node have one for each.
type oneLine struct{ err error }

func (e *oneLine) Error() string { return strings.ReplaceAll(e.err.Error(), "\n", "; ") }
func (e *oneLine) Unwrap() error { return e.err }

func (rs *registrySession) note(at *url.URL, ok bool, answer string) {
	a := attempt{host: at.Host, url: at.Scheme + "://" + at.Host, answer: answer, ok: ok}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := range rs.tried {
		if rs.tried[i].host == a.host {
			rs.tried[i] = a
			return
		}
	}
	rs.tried = append(rs.tried, a)
}

// watchedTransport notes the answers of hosts and watches the bodies.
type watchedTransport struct {
	session *registrySession
	next    http.RoundTripper
}

func (t *watchedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	timer := t.session.watch(req.URL)
	resp, err := t.next.RoundTrip(req)
	timer.Stop()
	if err != nil {
		t.session.note(req.URL, false, err.Error())
		return nil, err
	}
	at := req.URL
	if resp.Request != nil {
		at = resp.Request.URL // plain HTTP, when HTTPS was only tried
	}
	answer := resp.Status
	if resp.StatusCode >= 400 && req.Method == http.MethodGet && !retryable(resp.StatusCode) {
		answer = says(resp)
	}
	t.session.note(at, resp.StatusCode < 400, answer)
	resp.Body = &watchedBody{ReadCloser: resp.Body, session: t.session, at: at}
	return resp, nil
}

// says is the status of a refusal with what the registry says about it, which is left to be read again.
func says(resp *http.Response) string {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	if words := registrySays(raw); err == nil && words != "" {
		return resp.Status + ": " + words
	}
	return resp.Status
}

// watch ends the pull unless the returned timer is stopped in time.
func (rs *registrySession) watch(at *url.URL) *time.Timer {
	wait := rs.stall
	if wait < 0 {
		wait = math.MaxInt64
	}
	return time.AfterFunc(wait, func() {
		rs.cancel(fmt.Errorf("%s://%s sent nothing for %s: %w", at.Scheme, at.Host, rs.stall, errdefs.ErrUnavailable))
	})
}

type watchedBody struct {
	io.ReadCloser
	session *registrySession
	at      *url.URL
}

func (b *watchedBody) Read(p []byte) (int, error) {
	timer := b.session.watch(b.at)
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err == io.ErrUnexpectedEOF {
		// Itself it would make containerd's reader ask for the rest at once, again and again; blob.fetchAll waits.
		err = fmt.Errorf("the connection to %s broke: %w", b.at.Host, err)
	}
	return n, err
}
