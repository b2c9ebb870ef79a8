// Package registry is an image registry in the test's own process: it serves what the test puts in, by the distribution
// specification (pulls only), and misbehaves where the test says so. What it was asked is written down.
//
//	r := registry.New(t)
//	ref := r.Push("a/b", "v1", built)
//	r.Misbehave(registry.Rule{Of: registry.Blobs, Times: 2, Fault: registry.Status(503, "Retry-After", "1")})
//
// For a registry that behaves, and for pushes, test/images runs Debian's docker-registry.
package registry

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// Kind is what a request is for.
type Kind string

// The kinds of requests; a Rule for Any is for all of them.
const (
	Any       Kind = ""
	Ping      Kind = "ping" // /v2/
	Manifests Kind = "manifests"
	Blobs     Kind = "blobs"
	Other     Kind = "other"
)

// Request is one that the registry got.
type Request struct {
	Method string
	Kind   Kind
	// Name is the tag or the digest that was asked for.
	Name string
	// Path, Query and Proto are those of the request line.
	Path, Query, Proto string
	Header             http.Header
	Host               string
	Status             int // of the answer
}

// Rule is one way to misbehave. The first rule that fits a request is applied.
type Rule struct {
	Of Kind
	// Method and Name restrict the rule further, when they are set.
	Method, Name string
	// After lets so many requests that fit pass first, and Times is how many are spoilt then; 0 is all.
	After, Times int
	Fault        Fault
}

func (r *Rule) fits(q Request) bool {
	return (r.Of == Any || r.Of == q.Kind) && (r.Method == "" || r.Method == q.Method) && (r.Name == "" || r.Name == q.Name)
}

// Registry is an http.Handler that is served on loopback while the test runs.
type Registry struct {
	// Addr is host:port, the first part of the references of its images.
	Addr string

	srv *httptest.Server

	mu        sync.Mutex
	guard     Guard
	manifests map[string]manifest // by repository/tag and repository/digest
	blobs     map[digest.Digest][]byte
	rules     []*Rule
	seen      map[*Rule]int
	requests  []Request
}

type manifest struct {
	mediaType string
	raw       []byte
}

// Guard says who is let in; to others it names the challenges of WWW-Authenticate.
type Guard func(req *http.Request) (ok bool, challenges []string)

// New starts a registry over plain HTTP that ends with the test.
func New(tb testing.TB) *Registry {
	tb.Helper()
	return start(tb, (*httptest.Server).Start)
}

// NewTLS starts a registry over TLS that ends with the test. HTTP/2 is offered beside HTTP/1.1.
func NewTLS(tb testing.TB, cfg *tls.Config) *Registry {
	tb.Helper()
	return start(tb, func(srv *httptest.Server) {
		srv.TLS, srv.EnableHTTP2 = cfg, true
		srv.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it
		srv.StartTLS()
	})
}

func start(tb testing.TB, begin func(*httptest.Server)) *Registry {
	r := NewUnstarted()
	r.srv = httptest.NewUnstartedServer(r)
	begin(r.srv)
	r.Addr = r.srv.Listener.Addr().String()
	tb.Cleanup(func() {
		r.srv.CloseClientConnections()
		r.srv.Close()
	})
	return r
}

// NewUnstarted makes the handler only, for a test that has a server of its own (TLS, a proxy).
func NewUnstarted() *Registry {
	return &Registry{manifests: map[string]manifest{}, blobs: map[digest.Digest][]byte{}, seen: map[*Rule]int{}}
}

// Push stores an image and returns its reference.
func (r *Registry) Push(repository, tag string, b *ociarchive.Built) (ref string) {
	for d, raw := range b.Blobs {
		r.SetBlob(d, raw)
	}
	r.SetManifest(repository, tag, b.Manifest.MediaType, b.Blobs[b.Manifest.Digest])
	return r.Addr + "/" + repository + ":" + tag
}

// SetManifest stores a manifest or an index under a tag and under its digest, whatever its bytes are.
func (r *Registry) SetManifest(repository, tag, mediaType string, raw []byte) digest.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := digest.FromBytes(raw)
	m := manifest{mediaType: mediaType, raw: raw}
	r.manifests[repository+"/"+tag], r.manifests[repository+"/"+d.String()] = m, m
	return d
}

// SetBlob stores bytes under a digest, which need not be theirs.
func (r *Registry) SetBlob(d digest.Digest, raw []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs[d] = raw
}

// Misbehave replaces the rules; none, and the registry behaves.
func (r *Registry) Misbehave(rules ...Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules, r.seen = nil, map[*Rule]int{}
	for i := range rules {
		r.rules = append(r.rules, &rules[i])
	}
}

// Guard asks who a request comes from before anything else; nil lets in everybody.
func (r *Registry) Guard(g Guard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guard = g
}

// Requests are those of a kind that were answered, or are being answered, so far.
func (r *Registry) Requests(of Kind) []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Request
	for _, q := range r.requests {
		if of == Any || q.Kind == of {
			out = append(out, q)
		}
	}
	return out
}

// Forget forgets the requests so far.
func (r *Registry) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	repository, kind, name := split(req.URL.Path)
	q := Request{Method: req.Method, Kind: kind, Name: name, Path: req.URL.Path, Query: req.URL.RawQuery, Proto: req.Proto, Header: req.Header.Clone(), Host: req.Host}
	r.mu.Lock()
	at := len(r.requests)
	r.requests = append(r.requests, q)
	guard := r.guard
	r.mu.Unlock()
	noted := &noting{ResponseWriter: w, note: func(status int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if at < len(r.requests) {
			r.requests[at].Status = status
		}
	}}
	if guard != nil {
		if ok, challenges := guard(req); !ok {
			noted.Header()["Www-Authenticate"] = challenges
			refuse(noted, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
			return
		}
	}
	r.mu.Lock()
	fault := r.fault(q)
	r.mu.Unlock()
	serve := func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, repository, kind, name) }
	if fault != nil {
		fault(noted, req, serve)
		return
	}
	serve(noted, req)
}

// fault is called with mu held.
func (r *Registry) fault(q Request) Fault {
	for _, rule := range r.rules {
		if !rule.fits(q) {
			continue
		}
		r.seen[rule]++
		if n := r.seen[rule]; n <= rule.After || (rule.Times > 0 && n > rule.After+rule.Times) {
			continue
		}
		return rule.Fault
	}
	return nil
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request, repository string, kind Kind, name string) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is for pulls only")
		return
	}
	r.mu.Lock()
	m, haveManifest := r.manifests[repository+"/"+name]
	raw, haveBlob := r.blobs[digest.Digest(name)]
	r.mu.Unlock()
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	switch {
	case kind == Ping:
		w.WriteHeader(http.StatusOK)
	case kind == Manifests && haveManifest:
		w.Header().Set("Content-Type", m.mediaType)
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(m.raw).String())
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(m.raw))
	case kind == Blobs && haveBlob:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Docker-Content-Digest", name)
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(raw))
	case kind == Manifests:
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
	case kind == Blobs:
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown to registry")
	default:
		refuse(w, http.StatusNotFound, "UNSUPPORTED", "no such resource")
	}
}

// refuse answers as the distribution specification has it.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message)
}

// split reads /v2/REPOSITORY/{manifests,blobs}/NAME, also below another path (override_path).
func split(path string) (repository string, kind Kind, name string) {
	_, rest, ok := strings.Cut(path, "/v2/")
	if !ok {
		return "", Other, ""
	}
	if rest == "" {
		return "", Ping, ""
	}
	for _, kind := range []Kind{Manifests, Blobs} {
		if i := strings.LastIndex(rest, "/"+string(kind)+"/"); i >= 0 {
			return rest[:i], kind, rest[i+len(kind)+2:]
		}
	}
	return rest, Other, ""
}

// noting tells the status of an answer.
type noting struct {
	http.ResponseWriter
	once sync.Once
	note func(status int)
}

func (n *noting) WriteHeader(status int) {
	n.once.Do(func() { n.note(status) })
	n.ResponseWriter.WriteHeader(status)
}

func (n *noting) Write(p []byte) (int, error) {
	n.once.Do(func() { n.note(http.StatusOK) })
	return n.ResponseWriter.Write(p)
}

func (n *noting) Flush() { n.ResponseWriter.(http.Flusher).Flush() }
