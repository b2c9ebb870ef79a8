// Package admin is the administration socket of a running node: what `monopod device ls`, `monopod status` and their like ask. Package protocol
// says what is spoken, package client speaks it.
//
// The socket is root's alone (0600) and there is one a run directory. It tells; what can be asked of it beside is to end the node's pods, and to copy volumes of claims. It takes a bounded
// number of requests at a time, none of which has a body but an import. A socket that a killed node has left is replaced, and one of a node that ends is removed.
//
// It asks the roles by small interfaces of its own, so that a process that runs some of them serves what those know, and says what it does not.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/host/unixsocket"
)

// Devices is what the server asks of the device manager. Its methods are safe for concurrent use.
type Devices interface {
	Devices() []devices.DeviceStatus
	Grants() []devices.GrantRecord
	Problems() []devices.Problem
	// Watch returns a channel that ticks when one of the others may answer otherwise; one tick stands for any number of changes.
	Watch() (ticks <-chan struct{}, stop func())
}

// Drainer ends the node's pods. Its methods are safe for concurrent use.
type Drainer interface {
	// Begin begins to; joined: somebody has before, and that goes on as it is. An error is of what was asked for.
	Begin(protocol.DrainRequest) (joined bool, err error)
	Drain() protocol.Drain
	// Watch returns a channel that ticks when Drain may answer otherwise.
	Watch() (ticks <-chan struct{}, stop func())
}

// Config configures a Server.
type Config struct {
	// Socket is the path to serve at, in a directory that is there.
	Socket string
	// Devices are the node's devices; nil: the role devices does not run in this process.
	Devices Devices
	// Drain ends the node's pods; nil: the role agent does not run in this process.
	Drain Drainer
	// Status tells how the node is. What it cannot find out before its context ends it leaves out, and says so in the answer.
	Status func(context.Context) protocol.Status
	// Trace tells how a pod's start went. Its error is of a class of errdefs, and says what can be done; nil: nobody in this process knows pods.
	Trace func(ctx context.Context, namespace, name string) (protocol.Trace, error)
	// Volumes tells of the volumes of claims, as far as its context lets it; nil: nobody in this process makes any.
	Volumes func(context.Context) protocol.Volumes
	// Copies makes copies of volumes; nil: nobody in this process makes any volumes.
	Copies Copies
	Log    *slog.Logger
}

// Server serves the administration socket.
type Server struct {
	cfg      Config
	requests chan struct{} // a place for each request that is taken
	ready    chan struct{} // closed when requests are taken
}

// The limits of what is taken.
const (
	maxRequests = 64       // at a time, watches included
	maxHeader   = 16 << 10 // bytes
	headerTime  = 10 * time.Second
	idleTime    = time.Minute
	writeTime   = time.Minute      // how long a client may take to read what is sent at once
	statusTime  = 10 * time.Second // also for a trace
	closeTime   = time.Second      // for requests under way when the server ends
)

// New checks the configuration; nothing is made before Run.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Socket == "":
		return nil, errors.New("admin: Config.Socket must be set")
	case cfg.Status == nil:
		return nil, errors.New("admin: Config.Status must be set")
	case cfg.Log == nil:
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, requests: make(chan struct{}, maxRequests), ready: make(chan struct{})}, nil
}

// Ready is closed when the socket is there.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, and returns when all requests have ended; a watch ends with ctx. It is called once.
func (s *Server) Run(ctx context.Context) error {
	listener, err := listen(ctx, s.cfg.Socket)
	if err != nil {
		return fmt.Errorf("administration socket %s: %w", s.cfg.Socket, err)
	}
	close(s.ready)
	defer os.Remove(s.cfg.Socket) // best effort: the next one replaces it
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = server.Shutdown(bounded) // what it has not ended, Close does
		err = server.Close()
		<-ended
	}
	for range maxRequests { // every place is taken back, and none is given any more
		s.requests <- struct{}{}
	}
	return err
}

// listen serves the socket before it has its name, so that nobody finds one that does not answer.
func listen(ctx context.Context, path string) (net.Listener, error) {
	hidden := path + "~" // no longer than the names of the others in the directory: a socket's path is short
	if err := os.Remove(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := unixsocket.Listen(ctx, hidden)
	if err != nil {
		return nil, err
	}
	if err = notOther(path); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(hidden))
	}
	return l, nil
}

// notOther refuses to replace what is no socket.
func notOther(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("something else is there: remove it")
	}
	return nil
}
