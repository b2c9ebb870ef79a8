package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/sockdiag"
	"monopod.dev/monopod/internal/kit/ids"
)

const (
	// headerBound is how long a client may take to send its request, and maxHeader how long that may be, in bytes.
	headerBound = 10 * time.Second
	maxHeader   = 64 << 10
	// maxSessions bounds the streams that are open, and maxForwardsTotal the connections that all of them forward: this process
	// and the executor have only so many descriptors, and containers need them too.
	maxSessions      = 2000
	maxForwardsTotal = 4000
)

// Size is the size of a terminal's window, as clients send it.
type Size struct {
	Width, Height uint16
}

// Streams are a client's ends of a process's streams; nil is one that the client did not ask for. Reading Stdin ends with
// io.EOF when the client has no more, while the others go on.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Sizes brings the newest size of the client's window; nil without a terminal. It is never closed.
	Sizes <-chan Size
}

// Duplex is a client's end of a forwarded connection. Reading ends with io.EOF when the client has no more to send but may
// still receive, and with another error when it is gone.
type Duplex interface {
	io.ReadWriter
	// CloseWrite tells the client that no more comes. It is errors.ErrUnsupported where the protocol cannot say so.
	CloseWrite() error
}

// Backend does what clients ask for. The requests are those that the URL was made for. A context's cause is ErrClientGone,
// ErrIdle or ErrServerEnds when it ends before its call.
type Backend interface {
	// Exec runs a command to its end. An exit code but 0 is an error with ExitStatus() int.
	Exec(ctx context.Context, req *cri.ExecRequest, client Streams) error
	// PortForward serves one connection to the port.
	PortForward(ctx context.Context, sandboxID ids.SandboxID, port uint16, client Duplex) error
}

// Config is what a Server works with.
type Config struct {
	// Address is a loopback address; Port 0 takes a free one.
	Address netip.Addr
	Port    uint16
	// Idle ends a session of which nothing was streamed for that long; 0: never.
	Idle    time.Duration
	Backend Backend
	Log     *slog.Logger
}

// Server gives out URLs and serves them.
type Server struct {
	cfg      Config
	look     time.Duration // watchInterval
	header   time.Duration // headerBound
	listener net.Listener
	owners   *sockdiag.Table // nil: this kernel does not say whose sockets are
	tokens   tokens
	waiting  waiting
	open     atomic.Int64 // sessions
	forwards atomic.Int64

	mu       sync.Mutex
	sessions sync.WaitGroup
	ended    bool // no session may begin
}

// NewServer listens at the address.
func NewServer(cfg Config) (*Server, error) {
	if !cfg.Address.IsLoopback() {
		return nil, fmt.Errorf("streaming server: address %s is not on the loopback device; streams are not encrypted, so they stay on this host: %w", cfg.Address, errdefs.ErrInvalidArgument)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(cfg.Address, cfg.Port).String())
	if err != nil {
		return nil, fmt.Errorf("streaming server: %w", err)
	}
	owners, err := sockdiag.Open()
	if err != nil {
		cfg.Log.Warn("this kernel does not say who connects to the streaming server; all users share one bound", "error", err)
	}
	return &Server{cfg: cfg, look: watchInterval, header: headerBound, listener: l, owners: owners}, nil
}

// Close gives the address back; it is for a server that is not served.
func (s *Server) Close() error { return errors.Join(s.listener.Close(), s.closeOwners()) }

func (s *Server) closeOwners() error {
	if s.owners == nil {
		return nil
	}
	return s.owners.Close()
}

// Exec makes a URL for a request, which was validated.
func (s *Server) Exec(req *cri.ExecRequest) (string, error) {
	opts := options{stdin: req.GetStdin(), stdout: req.GetStdout(), stderr: req.GetStderr(), tty: req.GetTty()}
	return s.url("exec", func(c *session) {
		c.command(opts, func(client Streams) error { return s.cfg.Backend.Exec(c.ctx, req, client) })
	})
}

// Attach makes a URL for a request, which was validated, and is served by attach, once or not at all.
func (s *Server) Attach(req *cri.AttachRequest, attach func(ctx context.Context, client Streams) error) (string, error) {
	opts := options{stdin: req.GetStdin(), stdout: req.GetStdout(), stderr: req.GetStderr(), tty: req.GetTty()}
	return s.url("attach", func(c *session) {
		c.command(opts, func(client Streams) error { return attach(c.ctx, client) })
	})
}

// PortForward makes a URL for forwarding to ports of a sandbox: to any, if the list is empty.
func (s *Server) PortForward(sandboxID ids.SandboxID, ports []uint16) (string, error) {
	return s.url("portforward", func(c *session) {
		c.forward(ports, func(port uint16, client Duplex) error {
			return s.cfg.Backend.PortForward(c.ctx, sandboxID, port, client)
		})
	})
}

func (s *Server) url(kind string, serve func(*session)) (string, error) {
	if s.open.Load() >= maxSessions {
		return "", fmt.Errorf("%d streams are open: close some: %w", maxSessions, errdefs.ErrResourceExhausted)
	}
	token, err := s.tokens.add(kind, serve, time.Now())
	if err != nil {
		return "", err
	}
	u := url.URL{Scheme: "http", Host: s.listener.Addr().String(), Path: "/" + kind + "/" + token}
	return u.String(), nil
}

// Serve serves until ctx ends, cuts the streams that are open, and returns when nothing is left of them.
func (s *Server) Serve(ctx context.Context) error {
	sessions, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // so that the cause is ours
	mux := http.NewServeMux()
	serve := func(w http.ResponseWriter, r *http.Request) { s.serve(sessions, w, r) }
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" /{kind}/{token}", serve)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: s.header, IdleTimeout: s.header, MaxHeaderBytes: maxHeader,
		ConnState: s.limit, ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() {
		cancel(ErrServerEnds)
		server.Close()
	})
	defer stop()
	err := server.Serve(s.listener)
	cancel(ErrServerEnds)
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.sessions.Wait()
	if cerr := s.closeOwners(); cerr != nil {
		return errors.Join(err, cerr)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serve serves one request.
func (s *Server) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		http.Error(w, "the server ends", http.StatusServiceUnavailable)
		return
	}
	s.sessions.Add(1)
	s.mu.Unlock()
	defer s.sessions.Done()
	serve, ok := s.tokens.take(r.PathValue("kind"), r.PathValue("token"), time.Now())
	if !ok {
		http.NotFound(w, r)
		return
	}
	defer s.open.Add(-1)
	if s.open.Add(1) > maxSessions {
		http.Error(w, "too many streams are open", http.StatusServiceUnavailable)
		return
	}
	c := &session{ResponseWriter: w, req: r, forwards: &s.forwards, idle: s.cfg.Idle, look: s.look, log: s.cfg.Log.With("stream", r.PathValue("kind"))}
	c.ctx, c.end = context.WithCancelCause(ctx)
	c.run(serve)
}
