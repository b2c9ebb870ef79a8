package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// headerBound is how long a client may take to send its request.
const headerBound = 10 * time.Second

// Server serves the streams of Exec and Attach over HTTP on loopback. A URL holds a token that is good once, for a
// minute (k8s.io/cri-streaming's cache).
type Server struct {
	listener net.Listener
	handler  streaming.Server
}

// NewServer listens on a free port of the loopback address.
func NewServer(r *Runner) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("streaming server: %w", err)
	}
	cfg := streaming.DefaultConfig
	cfg.Addr = l.Addr().String()
	cfg.BaseURL = &url.URL{Scheme: "http", Host: cfg.Addr}
	h, err := streaming.NewServer(cfg, r)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &Server{listener: l, handler: h}, nil
}

// Serve serves until ctx ends, then cuts the streams that are open.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: headerBound, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Exec makes the URL of a validated request.
func (s *Server) Exec(id string, req *cri.ExecRequest) (*cri.ExecResponse, error) {
	return s.handler.GetExec(&cri.ExecRequest{ContainerId: id, Cmd: req.GetCmd(), Tty: req.GetTty(), Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr()})
}

// Attach makes the URL of a validated request.
func (s *Server) Attach(id string, req *cri.AttachRequest) (*cri.AttachResponse, error) {
	return s.handler.GetAttach(&cri.AttachRequest{ContainerId: id, Tty: req.GetTty(), Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr()})
}
