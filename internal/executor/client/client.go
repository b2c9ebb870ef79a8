// Package client calls the executor.
//
// A Client connects when it is first used and again whenever the connection is lost. While the executor's worker is
// being replaced, a call waits for its successor, until the call's context ends and at most ten seconds. A call that
// was sent but whose answer was lost is repeated when it is idempotent; Kill, Exec and Attach are not, they return
// errdefs.ErrUnavailable, and the caller asks State what came of them.
//
// Errors carry the classes of github.com/containerd/errdefs.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
)

const (
	// patience is the default of Config.Patience.
	patience = 10 * time.Second
	// redialPause is the first pause between two attempts to connect to a socket on which nobody listens. While a
	// worker is replaced the keeper keeps the socket open, so this is for an executor that is gone altogether.
	redialPause    = 10 * time.Millisecond
	redialPauseMax = 500 * time.Millisecond
)

// Config says which executor to call.
type Config struct {
	Socket string
	Log    *slog.Logger // nil: none
	// Patience bounds how long a call waits for the executor to be there; 0: ten seconds.
	Patience time.Duration
}

// Client calls one executor. Methods are safe for concurrent use.
type Client struct {
	cfg Config
	ctx context.Context // ends with Close; parent of all connections
	end context.CancelFunc

	mu   sync.Mutex
	conn *session // nil: none yet, or lost
}

// session is a connection whose Hello has been answered.
type session struct {
	*protocol.Conn
	hello protocol.HelloResponse
}

// New returns a client. It does not connect yet.
func New(cfg Config) *Client {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	c := &Client{cfg: cfg}
	// The connections belong to the client, not to the call that happens to make them.
	c.ctx, c.end = context.WithCancel(context.Background()) //nolint:forbidigo // see above
	return c
}

// Close ends all connections. Execs and attachments that run end with them; containers do not.
func (c *Client) Close() error {
	c.end()
	return nil
}

// Hello returns who answers: the executor's build and process ids.
func (c *Client) Hello(ctx context.Context) (protocol.HelloResponse, error) {
	s, err := c.session(ctx)
	if err != nil {
		return protocol.HelloResponse{}, err
	}
	return s.hello, nil
}

// Create makes a container. See protocol.CreateRequest.
func (c *Client) Create(ctx context.Context, req protocol.CreateRequest) (protocol.CreateResponse, error) {
	if req.Runtime != nil {
		s, err := c.session(ctx)
		if err != nil {
			return protocol.CreateResponse{}, err
		}
		if s.hello.Version < protocol.VersionRuntime {
			return protocol.CreateResponse{}, fmt.Errorf("%w: container %s: the executor that runs (%s) is too old for OCI runtimes: drain the node and restart it",
				errdefs.ErrNotImplemented, req.ID, s.hello.Build)
		}
	}
	return call[protocol.CreateResponse](ctx, c, protocol.MethodCreate, req, true)
}

// Init makes a pod's init. See protocol.InitRequest.
func (c *Client) Init(ctx context.Context, req protocol.InitRequest) (protocol.InitResponse, error) {
	return call[protocol.InitResponse](ctx, c, protocol.MethodInit, req, true)
}

// Update changes a container's resources, all or nothing. See protocol.UpdateRequest.
func (c *Client) Update(ctx context.Context, req protocol.UpdateRequest) error {
	_, err := call[struct{}](ctx, c, protocol.MethodUpdate, req, true)
	return err
}

// Start lets the container's program run. See protocol.IDRequest.
func (c *Client) Start(ctx context.Context, id ids.ContainerID) (protocol.StartResponse, error) {
	resp, err := call[protocol.StartResponse](ctx, c, protocol.MethodStart, protocol.IDRequest{ID: id}, false)
	if !protocol.IsLost(err) {
		return resp, err
	}
	resp, err = call[protocol.StartResponse](ctx, c, protocol.MethodStart, protocol.IDRequest{ID: id}, true)
	if !errdefs.IsFailedPrecondition(err) {
		return resp, err
	}
	// The answer to the first attempt was lost, but it was carried out, and the container has ended since.
	if s, serr := c.State(ctx, id); serr == nil && s.Phase == protocol.Exited && !s.StartedAt.IsZero() {
		return protocol.StartResponse{StartedAt: s.StartedAt}, nil
	}
	return resp, err
}

// Kill sends a signal. It is not repeated by itself: a program may count signals.
func (c *Client) Kill(ctx context.Context, req protocol.KillRequest) error {
	_, err := call[struct{}](ctx, c, protocol.MethodKill, req, false)
	return err
}

// Delete removes what is left of a container. See protocol.IDRequest.
func (c *Client) Delete(ctx context.Context, id ids.ContainerID) error {
	_, err := call[struct{}](ctx, c, protocol.MethodDelete, protocol.IDRequest{ID: id}, true)
	return err
}

// State returns what the executor knows of a container.
func (c *Client) State(ctx context.Context, id ids.ContainerID) (protocol.ContainerState, error) {
	return call[protocol.ContainerState](ctx, c, protocol.MethodState, protocol.IDRequest{ID: id}, true)
}

// List returns the states of all containers, exited ones too.
func (c *Client) List(ctx context.Context) ([]protocol.ContainerState, error) {
	resp, err := call[protocol.ListResponse](ctx, c, protocol.MethodList, struct{}{}, true)
	return resp.Containers, err
}

// Exec runs a process in a container and returns when it has ended. The files stay the caller's. Ending ctx kills the
// process. See protocol.ExecRequest.
func (c *Client) Exec(ctx context.Context, req protocol.ExecRequest, files ...*os.File) (protocol.ExecResponse, error) {
	return call[protocol.ExecResponse](ctx, c, protocol.MethodExec, req, false, files...)
}

// Attach copies a container's stdio to and from the files, and returns when the container has ended and its output is
// drained, or when ctx ends. The files stay the caller's; the executor makes its duplicates of them non-blocking, which
// whoever shares the same open file sees too. See protocol.AttachRequest.
func (c *Client) Attach(ctx context.Context, req protocol.AttachRequest, files ...*os.File) error {
	_, err := call[struct{}](ctx, c, protocol.MethodAttach, req, false, files...)
	return err
}

// Hold is Attach that returns as soon as the executor has attached the files: whatever is read of the container's output from then on comes. wait is the rest of Attach.
// The error is errdefs.ErrFailedPrecondition when all output was read before, which is so a moment before the exit is known, or of a program that has
// closed its output; and errdefs.ErrNotImplemented of an executor that does not say when it has attached somebody.
func (c *Client) Hold(ctx context.Context, req protocol.AttachRequest, files ...*os.File) (wait func() error, err error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if s.hello.Version < protocol.VersionAttached {
		return nil, fmt.Errorf("%w: the executor that runs (%s) does not say when it has attached a client", errdefs.ErrNotImplemented, s.hello.Build)
	}
	fds, err := dup(files)
	if err != nil {
		return nil, err
	}
	attached, ended := make(chan struct{}), make(chan error, 1)
	tell := sync.OnceFunc(func() { close(attached) })
	go func() {
		defer protocol.CloseFDs(fds)
		ended <- s.Call(ctx, protocol.Outgoing{Method: protocol.MethodAttach, Body: req, FDs: fds, OnNote: func(_ json.RawMessage, fds []protocol.FD) {
			protocol.CloseFDs(fds)
			tell()
		}}, nil)
	}()
	wait = sync.OnceValue(func() error { return <-ended })
	select {
	case <-attached:
		return wait, nil
	case err := <-ended:
		ended <- err
	}
	select {
	case <-attached:
		return wait, nil
	default:
	}
	if err := wait(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: all output of container %s has been read", errdefs.ErrFailedPrecondition, req.ID)
}

// Resize sets a pty's window size.
func (c *Client) Resize(ctx context.Context, req protocol.ResizeRequest) error {
	_, err := call[struct{}](ctx, c, protocol.MethodResize, req, true)
	return err
}

// ReopenLog makes the container's log go on in a new file at the same path.
func (c *Client) ReopenLog(ctx context.Context, id ids.ContainerID) error {
	_, err := call[struct{}](ctx, c, protocol.MethodReopenLog, protocol.IDRequest{ID: id}, true)
	return err
}

// Events calls f for each event, in order, until ctx ends, and returns its error. A lost connection is renewed; after
// that the states of all containers come again, followed by Synced. f may take its time: only events wait for it, and of
// several states of one container that wait, the newest is kept.
func (c *Client) Events(ctx context.Context, f func(protocol.Event)) error {
	for {
		err := c.subscribe(ctx, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.ctx.Err() != nil {
			return net.ErrClosed
		}
		if !protocol.IsLost(err) && !errdefs.IsUnavailable(err) {
			return err
		}
		c.cfg.Log.Debug("executor: subscription is renewed", "error", err)
	}
}

// subscribe runs one subscription on a connection of its own, so that a slow f delays nobody else.
func (c *Client) subscribe(ctx context.Context, f func(protocol.Event)) error {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	return s.Call(ctx, protocol.Outgoing{Method: protocol.MethodSubscribe, Body: struct{}{},
		OnNote: func(body json.RawMessage, fds []protocol.FD) {
			protocol.CloseFDs(fds)
			var ev protocol.Event
			if err := json.Unmarshal(body, &ev); err != nil {
				c.cfg.Log.Warn("executor: event dropped", "error", err)
				return
			}
			if ctx.Err() == nil {
				f(ev)
			}
		}}, nil)
}

// Shutdown ends the executor, and returns when its keeper is gone. See protocol.ShutdownRequest.
func (c *Client) Shutdown(ctx context.Context, req protocol.ShutdownRequest) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	keeper, err := proc.OpenFD(s.hello.KeeperPID) // before the call: afterwards the pid may be somebody else's
	if err != nil {
		return fmt.Errorf("executor's keeper: %w", err)
	}
	defer keeper.Close()
	err = s.Call(ctx, protocol.Outgoing{Method: protocol.MethodShutdown, Body: req}, nil)
	if err != nil && !protocol.IsLost(err) {
		return err
	}
	if err := keeper.Wait(ctx); err != nil {
		return fmt.Errorf("wait for the executor's keeper (pid %d) to end: %w", keeper.PID(), err)
	}
	return nil
}

// Handover asks the executor to go on as the program in the file, and returns an error if it stays what it is. It returns nil as soon as it may have
// become the other: Hello, of another client, tells. See protocol.HandoverRequest.
func (c *Client) Handover(ctx context.Context, req protocol.HandoverRequest, program *os.File) error {
	fd, err := protocol.DupFile(program)
	if err != nil {
		return err
	}
	defer fd.Close()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", c.cfg.Socket)
	if err != nil {
		return err
	}
	conn := protocol.NewConn(c.ctx, nc.(*net.UnixConn), protocol.ConnConfig{Log: c.cfg.Log})
	defer conn.Close()
	err = conn.Call(ctx, protocol.Outgoing{Method: protocol.MethodHandover, Body: req, FDs: []protocol.FD{fd}}, nil)
	if protocol.IsLost(err) {
		return nil
	}
	return err
}

// call makes one call, and repeats an idempotent one whose connection was lost.
func call[R any](ctx context.Context, c *Client, method string, req any, idempotent bool, files ...*os.File) (resp R, err error) {
	fds, err := dup(files)
	if err != nil {
		return resp, err
	}
	defer protocol.CloseFDs(fds)
	for {
		s, err := c.session(ctx)
		if err != nil {
			return resp, err
		}
		err = s.Call(ctx, protocol.Outgoing{Method: method, Body: req, FDs: fds}, &resp)
		if err == nil || !protocol.IsLost(err) || !idempotent || c.ctx.Err() != nil {
			return resp, err
		}
		c.cfg.Log.Debug("executor: call is repeated on a new connection", "method", method, "error", err)
	}
}

// dup makes the duplicates that go with a call.
func dup(files []*os.File) ([]protocol.FD, error) {
	fds := make([]protocol.FD, 0, len(files))
	for _, f := range files {
		fd, err := protocol.DupFile(f)
		if err != nil {
			protocol.CloseFDs(fds)
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// session returns the shared connection, and makes it when there is none.
func (c *Client) session(ctx context.Context) (*session, error) {
	c.mu.Lock()
	s := c.conn
	c.mu.Unlock()
	if s != nil {
		select {
		case <-s.Done():
		default:
			return s, nil
		}
	}
	fresh, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn != s { // somebody else was faster
		select {
		case <-c.conn.Done():
		default:
			fresh.Close()
			return c.conn, nil
		}
	}
	c.conn = fresh
	return fresh, nil
}

// connect connects and says Hello. It waits for an executor that is not there yet.
func (c *Client) connect(ctx context.Context) (*session, error) {
	wait, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	for pause := redialPause; ; pause = min(2*pause, redialPauseMax) {
		s, err := c.dial(wait)
		if err == nil {
			return s, nil
		}
		var remote *protocol.Error
		if errors.As(err, &remote) { // an executor that answers, and refuses
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return nil, fmt.Errorf("%w: executor client: %w", errdefs.ErrUnavailable, net.ErrClosed)
		case <-wait.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("%w: no executor answers on %s within %s: %w", errdefs.ErrUnavailable, c.cfg.Socket, c.cfg.Patience, err)
		}
	}
}

func (c *Client) dial(ctx context.Context) (*session, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", c.cfg.Socket)
	if err != nil {
		return nil, err
	}
	s := &session{Conn: protocol.NewConn(c.ctx, nc.(*net.UnixConn), protocol.ConnConfig{Log: c.cfg.Log})}
	hello := protocol.HelloRequest{MinVersion: protocol.MinVersion, MaxVersion: protocol.Version}
	if err := s.Call(ctx, protocol.Outgoing{Method: protocol.MethodHello, Body: hello}, &s.hello); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
