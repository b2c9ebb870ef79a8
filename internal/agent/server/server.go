// Package server serves the agent's own HTTPS API by the kubelet's paths: logs of containers, exec, attach and
// port-forward (passed through to the runtime's streaming server), the node's pods, what the node and they use, and its health.
//
// It guarantees that nobody is served without a client certificate of the configured authority or a token that the API
// server vouches for, and without the API server's consent to the act (SubjectAccessReview on the node's
// subresources); who is not let in does not hold the port either. To act inside a container takes the verb create,
// whatever method the client's protocol begins with.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/metrics"
	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/kit/preauth"
)

// Pods are the node's pods.
type Pods interface {
	// Pod returns the pod as the API server told of it last.
	Pod(namespace, name string) (*v1.Pod, bool)
	Pods() []*v1.Pod
	// Await returns when the API server has told of all pods that there were when this process began, or with the cause of the end of ctx.
	Await(ctx context.Context) error
	// Watch ticks whenever the runtime's state of the pod may have changed, until stop is called.
	Watch(uid types.UID) (ticks <-chan struct{}, stop func())
}

// Config configures the server.
type Config struct {
	// NodeName is the node's, whose subresources are what a user may be allowed.
	NodeName string
	// Listener is where the API is served; Run closes it.
	Listener net.Listener
	// Cert and Key are PEM files, read again when they change; ClientCA is the authority of client certificates.
	Cert, Key, ClientCA string
	// Kube asks the API server who a token belongs to and what a user may do.
	Kube    kubernetes.Interface
	Runtime criv1.RuntimeServiceClient
	Pods    Pods
	// Stats, Metrics, Probes and Config are what the agent tells of what the node uses and of itself. Each may be nil: then it is not served, and of
	// probes there are none. Config is the KubeletConfiguration that holds now.
	Stats   Stats
	Metrics *metrics.Agent
	Probes  Probes
	Config  func() any
	// Strangers bounds who connects and does not authenticate.
	Strangers preauth.Limits
	Log       *slog.Logger
}

// Server is the agent's API.
type Server struct {
	cfg      Config
	listener *preauth.Listener
	guard    *guard
	certs    certificate
	written  written
	seen     seen
	changes  podlog.Changes // of the logs that clients follow
}

// New reads the certificates. Nothing is served before Run.
func New(cfg Config) (*Server, error) {
	guard, err := newGuard(cfg)
	if err != nil {
		return nil, err
	}
	listener := preauth.New(cfg.Listener, cfg.Strangers)
	guard.authn = listener.Authenticator(guard.authn)
	s := &Server{cfg: cfg, listener: listener, guard: guard, certs: certificate{certFile: cfg.Cert, keyFile: cfg.Key}, seen: seen{moment: moment, brief: brief}}
	if _, err := s.certs.get(nil); err != nil {
		return nil, err
	}
	return s, nil
}

// What a client gets that is known, as of the API server: until a request's header is whole, and until the next request.
// Strangers have less (package preauth).
const (
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
)

// Run serves until ctx ends; streams that are open then are cut.
func (s *Server) Run(ctx context.Context) error {
	httpServer := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.certs.get,
			// Who comes without a certificate may still have a token; the guard decides.
			ClientAuth: tls.RequestClientCert,
			ClientCAs:  s.guard.clientCAs,
			// Streams are upgraded connections, which HTTP/2 has not.
			NextProtos: []string{"http/1.1"},
		},
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		// Nothing here is worth waiting for: logs and streams have no end of their own.
		if err := httpServer.Close(); err != nil {
			s.cfg.Log.Debug("the agent's API was not closed in order", "error", err)
		}
	}()
	err := httpServer.ServeTLS(s.listener, "", "")
	if ctx.Err() == nil {
		return fmt.Errorf("the agent's API at %s: %w", s.cfg.Listener.Addr(), err)
	}
	<-stopped
	return nil
}

// handler routes by the kubelet's paths.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /pods", s.listPods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	for _, method := range []string{"GET ", "POST "} {
		mux.HandleFunc(method+"/exec/{namespace}/{pod}/{container}", s.exec)
		mux.HandleFunc(method+"/exec/{namespace}/{pod}/{uid}/{container}", s.exec)
		mux.HandleFunc(method+"/attach/{namespace}/{pod}/{container}", s.attach)
		mux.HandleFunc(method+"/attach/{namespace}/{pod}/{uid}/{container}", s.attach)
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}", s.portForward)
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}/{uid}", s.portForward)
	}
	s.numbers(mux)
	return s.guard.protect(s.counted(mux))
}

// listPods answers with the node's pods as the API server knows them.
func (s *Server) listPods(w http.ResponseWriter, r *http.Request) {
	if err := s.await(r.Context()); err != nil {
		answer(w, err)
		return
	}
	list := v1.PodList{}
	list.Kind, list.APIVersion = "PodList", "v1"
	for _, p := range s.cfg.Pods.Pods() {
		list.Items = append(list.Items, *p)
	}
	s.answerJSON(w, list)
}

// certificate is the server's certificate, read again when its file has changed.
type certificate struct {
	certFile, keyFile string

	mu      sync.Mutex // guards what follows
	loaded  *tls.Certificate
	changed time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	info, err := os.Stat(c.certFile)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && info.ModTime().Equal(c.changed) {
		return c.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		if c.loaded != nil {
			// Half of a new pair is there: the old one serves until the other half is.
			return c.loaded, nil
		}
		return nil, fmt.Errorf("serving certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.loaded, c.changed = &pair, info.ModTime()
	return c.loaded, nil
}

// fail is an error with the HTTP status that it is answered with.
type fail struct {
	code int
	msg  string
}

func (f *fail) Error() string { return f.msg }

func failf(code int, format string, args ...any) error {
	return &fail{code, fmt.Sprintf(format, args...)}
}

// answer sends an error.
func answer(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var f *fail
	if errors.As(err, &f) {
		code = f.code
	}
	http.Error(w, err.Error(), code)
}
