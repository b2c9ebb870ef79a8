package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// envelope is a frame's payload. The peer that makes a call chooses its id; the other one answers with it.
type envelope struct {
	Kind   string          `json:"kind"`
	ID     uint64          `json:"id"`
	Method string          `json:"method,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Kinds of envelopes. A call is answered by any number of notes and then one reply. A cancel takes a call back: its
// reply, if it still comes, is ignored.
const (
	kindCall   = "call"
	kindReply  = "reply"
	kindNote   = "note"
	kindCancel = "cancel"
)

const (
	// writeTimeout bounds how long a peer may leave its end unread before it is given up.
	writeTimeout = 30 * time.Second
	// maxLong bounds the long calls of one connection that are served at a time.
	maxLong = 4096
)

// Call is a call to be served.
type Call struct {
	Method string
	// FDs came with the call. They are closed after the handler has returned; a handler that keeps one takes it out.
	FDs  []FD
	body json.RawMessage
	conn *Conn
	id   uint64
}

// Decode reads the call's body into req. The error is InvalidArgument.
func (c *Call) Decode(req any) error {
	if err := json.Unmarshal(c.body, req); err != nil {
		return fmt.Errorf("%s: %w: %w", c.Method, errdefs.ErrInvalidArgument, err)
	}
	return nil
}

// Note sends something ahead of the reply. The descriptors stay the caller's.
func (c *Call) Note(note any, fds ...FD) error {
	return c.conn.send(envelope{Kind: kindNote, ID: c.id}, note, fds)
}

// Conn is one connection: either side may call the other. Methods are safe for concurrent use.
type Conn struct {
	sock  *net.UnixConn
	serve func(context.Context, *Call) (any, error)
	lasts func(method string) bool
	log   *slog.Logger
	ctx   context.Context // ends with the connection; parent of the contexts of served calls
	end   context.CancelCauseFunc

	wmu sync.Mutex // serializes frames

	mu      sync.Mutex
	nextID  uint64
	waiting map[uint64]*waiter            // calls that we made
	serving map[uint64]context.CancelFunc // calls that we serve
	long    int                           // how many of them are long
}

type waiter struct {
	reply  chan envelope // buffered: the reader never waits
	onNote func(json.RawMessage, []FD)
}

// ConnConfig says how a connection is used.
type ConnConfig struct {
	// Serve answers calls of the other side, each in a goroutine of its own; its context ends when the call is
	// cancelled and when the connection ends. nil refuses all calls.
	Serve func(context.Context, *Call) (any, error)
	// Long tells the methods whose calls last as long as somebody else likes. There is a bound on how many of them are served at a time; all
	// others are never refused, whatever hangs. nil: there are none.
	Long func(method string) bool
	Log  *slog.Logger
}

// NewConn takes over the socket and starts to read from it. The connection ends with ctx, by Close, or when the other
// side goes.
func NewConn(ctx context.Context, sock *net.UnixConn, cfg ConnConfig) *Conn {
	c := &Conn{
		sock: sock, serve: cfg.Serve, lasts: cfg.Long, log: cfg.Log,
		waiting: map[uint64]*waiter{}, serving: map[uint64]context.CancelFunc{},
	}
	c.ctx, c.end = context.WithCancelCause(ctx)
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	context.AfterFunc(c.ctx, func() { c.sock.Close() })
	go c.read()
	return c
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Close ends the connection. Calls in both directions are cancelled.
func (c *Conn) Close() error {
	c.end(net.ErrClosed)
	return nil
}

// errLost is what callers get whose connection ended before the reply came.
func (c *Conn) errLost() error {
	return fmt.Errorf("%w: connection to the executor ended: %w", errdefs.ErrUnavailable, context.Cause(c.ctx))
}

// Outgoing is a call to be made.
type Outgoing struct {
	Method string
	Body   any
	FDs    []FD // they stay the caller's
	// OnNote takes the notes that precede the reply, in order, and owns the descriptors that come with them. It runs
	// in the connection's reader: it must not wait for anything that this connection brings.
	OnNote func(body json.RawMessage, fds []FD)
}

// Call makes a call and decodes its reply into reply, which may be nil. When the connection ends first the error is
// Unavailable, and nobody knows whether the call was carried out. When ctx ends first the call is cancelled.
func (c *Conn) Call(ctx context.Context, out Outgoing, reply any) error {
	w := &waiter{reply: make(chan envelope, 1), onNote: out.OnNote}
	c.mu.Lock()
	c.nextID++
	id := c.nextID
	c.waiting[id] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if err := c.send(envelope{Kind: kindCall, ID: id, Method: out.Method}, out.Body, out.FDs); err != nil {
		return err
	}
	select {
	case env := <-w.reply:
		return decodeReply(env, out.Method, reply)
	case <-ctx.Done():
		_ = c.send(envelope{Kind: kindCancel, ID: id}, nil, nil) // best effort: a lost connection cancels too
		return ctx.Err()
	case <-c.ctx.Done():
		select { // the reply may have been the last thing that came
		case env := <-w.reply:
			return decodeReply(env, out.Method, reply)
		default:
			return c.errLost()
		}
	}
}

func decodeReply(env envelope, method string, reply any) error {
	if env.Error != nil {
		return env.Error
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(env.Body, reply); err != nil {
		return fmt.Errorf("reply to %s: %w", method, err)
	}
	return nil
}

func (c *Conn) send(env envelope, body any, fds []FD) error {
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode %s: %w", env.Method, err)
		}
		env.Body = raw
	}
	payload, err := json.Marshal(env)
	if err != nil {
		return err
	}
	if len(payload) > MaxPayload {
		return fmt.Errorf("%w: %s of %d bytes, the limit is %d", errdefs.ErrInvalidArgument, env.Kind, len(payload), MaxPayload)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.ctx.Err() != nil {
		return c.errLost()
	}
	c.sock.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := writeFrame(c.sock, payload, fds); err != nil {
		c.end(err) // a frame cut short cannot be taken back
		return c.errLost()
	}
	return nil
}

// read is the connection's reader.
func (c *Conn) read() {
	for {
		payload, fds, err := readFrame(c.sock)
		if err != nil {
			if errors.Is(err, errFrame) {
				c.log.Warn("connection closed", "error", err)
			}
			c.end(err)
			return
		}
		var env envelope
		if err := json.Unmarshal(payload, &env); err != nil {
			CloseFDs(fds)
			c.log.Warn("connection closed: the payload is no envelope", "error", err)
			c.end(fmt.Errorf("%w: %w", errFrame, err))
			return
		}
		c.dispatch(env, fds)
	}
}

func (c *Conn) dispatch(env envelope, fds []FD) {
	switch env.Kind {
	case kindCall:
		c.dispatchCall(env, fds)
		return
	case kindCancel:
		c.mu.Lock()
		cancel := c.serving[env.ID]
		c.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case kindNote, kindReply:
		c.mu.Lock()
		w := c.waiting[env.ID]
		c.mu.Unlock()
		switch {
		case w == nil: // cancelled meanwhile
		case env.Kind == kindReply:
			select {
			case w.reply <- env:
			default: // a second reply: a peer that does so gets the first one heard
			}
		case w.onNote != nil:
			w.onNote(env.Body, fds)
			return // the descriptors are the callback's
		}
	}
	CloseFDs(fds)
}

func (c *Conn) dispatchCall(env envelope, fds []FD) {
	call := &Call{Method: env.Method, FDs: fds, body: env.Body, conn: c, id: env.ID}
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	_, taken := c.serving[env.ID]
	long := c.lasts != nil && c.lasts(env.Method)
	full := long && c.long >= maxLong
	serves := !taken && !full
	if serves {
		c.serving[env.ID] = cancel
		if long {
			c.long++
		}
	}
	c.mu.Unlock()
	var refusal error
	switch {
	case c.serve == nil:
		refusal = fmt.Errorf("%w: this side serves no calls", errdefs.ErrNotImplemented)
	case taken:
		refusal = fmt.Errorf("%w: call id %d is in use", errdefs.ErrInvalidArgument, env.ID)
	case full:
		refusal = fmt.Errorf("%w: %s: %d calls of its kind are being served on this connection; end some of them", errdefs.ErrResourceExhausted, env.Method, maxLong)
	}
	go func() {
		defer cancel()
		var reply any
		err := refusal
		if err == nil {
			reply, err = c.serve(ctx, call)
		}
		CloseFDs(call.FDs)
		if serves {
			c.mu.Lock()
			delete(c.serving, env.ID)
			if long {
				c.long--
			}
			c.mu.Unlock()
		}
		out := envelope{Kind: kindReply, ID: env.ID}
		if err != nil {
			out.Error, reply = toError(err), nil
		}
		if err := c.send(out, reply, nil); err != nil && c.ctx.Err() == nil {
			// The reply itself is at fault (too large): say so, rather than leave the caller waiting.
			_ = c.send(envelope{Kind: kindReply, ID: env.ID, Error: toError(err)}, nil, nil) // who has gone needs no answer
		}
	}()
}

// IsLost reports whether err says that the connection ended before the reply came.
func IsLost(err error) bool {
	var remote *Error
	return errors.Is(err, errdefs.ErrUnavailable) && !errors.As(err, &remote) || errors.Is(err, io.EOF)
}
