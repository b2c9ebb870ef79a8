package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Session is one pull's way to a registry and its mirrors. It remembers what each host said, so that an error can name them
// all, and it ends a download that stands still. All methods are safe for concurrent use.
type Session struct {
	resolver remotes.Resolver
	fetcher  func() (remotes.Fetcher, error)

	ref        string // the whole reference
	registry   string // the host part of it
	auth       *Auth
	stall      time.Duration
	retryDelay time.Duration
	cancel     context.CancelCauseFunc // ends the pull
	hosts      func() ([]docker.RegistryHost, error)

	mu         sync.Mutex
	tried      []attempt
	transports []http.RoundTripper // the innermost ones, which hold the connections
	followed   map[string]bool     // hosts after which another one is asked
	distrusted map[string]error    // of those, the ones that are not asked any more, and why
}

// attempt is the last thing that a host did.
type attempt struct {
	host   string
	url    string // scheme and host
	answer string
	ok     bool
}

// Registry is the host part of the reference, whichever hosts are asked for it.
func (rs *Session) Registry() string { return rs.registry }

// Fetch implements remotes.Fetcher: it begins to read a blob. The reader can seek, and goes on there by a new request.
func (rs *Session) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	from, err := rs.fetcher()
	if err != nil {
		return nil, err
	}
	return from.Fetch(ctx, desc)
}

// Close gives the session's connections back. Each session has its own, because credentials and hosts.toml may differ.
func (rs *Session) Close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, t := range rs.transports {
		if c, ok := t.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// lastResort says whether no other host is asked when this one fails.
func (rs *Session) lastResort(host string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return !rs.followed[host]
}

// distrust keeps this pull from asking a host again, and says whether another one is asked instead. The last resort is
// asked whatever it did.
func (rs *Session) distrust(host string, why error) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !rs.followed[host] || rs.distrusted[host] != nil {
		return false
	}
	rs.distrusted[host] = why
	return true
}

// mayAsk is an error when a host is distrusted.
func (rs *Session) mayAsk(host string) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if why := rs.distrusted[host]; why != nil {
		return fmt.Errorf("%s is not asked again in this pull: %v: %w", host, why, errdefs.ErrUnavailable)
	}
	return nil
}

// Explain adds to an error what each host answered, when any of them did not do as it was asked.
func (rs *Session) Explain(err error) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if strings.Contains(err.Error(), "\n") {
		err = &oneLine{err}
	}
	if !slices.ContainsFunc(rs.tried, func(a attempt) bool { return !a.ok }) {
		return err
	}
	said, words, news := make([]string, len(rs.tried)), err.Error(), false
	for i, a := range rs.tried {
		said[i] = a.url
		if !strings.Contains(words, a.url) || !strings.Contains(words, a.answer) { // else the error is this answer
			said[i], news = a.url+" ("+a.answer+")", true
		}
	}
	if !news {
		return err
	}
	return fmt.Errorf("%w; tried: %s", err, strings.Join(said, ", "))
}

// oneLine is an error as one line: events and logs of a node have one for each.
type oneLine struct{ err error }

func (e *oneLine) Error() string { return strings.ReplaceAll(e.err.Error(), "\n", "; ") }
func (e *oneLine) Unwrap() error { return e.err }

func (rs *Session) note(at *url.URL, ok bool, answer string) {
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

// servedKey leads to the *Served of a context.
type servedKey struct{}

// Served is the host that answered the last request of a context (In): who is to blame for what is wrong with the answer.
type Served struct {
	mu      sync.Mutex
	session *Session
	host    string
}

// In is the context of the requests whose host is meant.
func (s *Served) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, servedKey{}, s)
}

// Distrust is Session.distrust for the host that answered last.
func (s *Served) Distrust(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session != nil && s.session.distrust(s.host, why)
}

// noteServed is called with each answer that is no refusal.
func (rs *Session) noteServed(req *http.Request) {
	if s, ok := req.Context().Value(servedKey{}).(*Served); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.session, s.host = rs, askedHost(req)
	}
}

// askedForKey leads to the host of a registry, in the context of a request to its token server.
type askedForKey struct{}

// askedHost is the host of the registry that a request is made for, wherever it was redirected to.
func askedHost(req *http.Request) string {
	if host, ok := req.Context().Value(askedForKey{}).(string); ok {
		return host
	}
	return firstRequest(req).URL.Host
}

// redirections is how many of them led to a request.
func redirections(req *http.Request) (n int) {
	for ; req.Response != nil && req.Response.Request != nil; n++ {
		req = req.Response.Request
	}
	return n
}

// firstRequest is the request whose redirections led to this one.
func firstRequest(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}
