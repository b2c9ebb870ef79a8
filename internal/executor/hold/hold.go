// Package hold is the private contract between the executor's keeper and its worker, spoken in frames of package
// protocol over a socket pair.
//
// What the worker cannot lose it gives to the keeper to hold: of each container the pidfd, our ends of its pipes, or the
// pty's master. The keeper only keeps them. After the worker's death the next worker gets them all, with the exits that
// the keeper saw meanwhile.
package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// Descriptors that the keeper passes to a worker at its start.
const (
	ChannelFD  = 3 // the socket pair's end
	ListenerFD = 4 // the listening public socket
)

// Keys of holdings: a container's, and that of a further process of it, which begins with ExecPrefix.
const (
	containerPrefix = "container/"
	ExecPrefix      = "exec/"
)

// ContainerKey is a container's key.
func ContainerKey(id ids.ContainerID) string { return containerPrefix + string(id) }

// ExecKey is that of a further process.
func ExecKey(id ids.ContainerID, execID ids.ExecID) string {
	return ExecPrefix + string(id) + "/" + string(execID)
}

// MethodPing is the one method of the worker: it answers when it gets on.
const MethodPing = "Ping"

// Methods of the keeper.
const (
	// MethodWatch is called first. Notes bring each holding and its descriptors, then Synced, then exits as they happen.
	MethodWatch = "Watch"
	// MethodBegin says that the worker has all that the keeper holds, and has changed nothing yet. It is answered when no other worker is there any more: that
	// of a former program has been ended by then.
	MethodBegin = "Begin"
	// MethodHold adds descriptors to a holding, and makes it when it is new.
	MethodHold = "Hold"
	// MethodDrop closes some descriptors of a holding.
	MethodDrop = "Drop"
	// MethodRelease ends a holding. It is idempotent.
	MethodRelease = "Release"
	// MethodReady says that the worker serves.
	MethodReady = "Ready"
	// MethodShutdown says that the worker is about to end for good, and the keeper is to end after it.
	MethodShutdown = "Shutdown"
	// MethodPrepare brings another program, and asks it whether it can go on with what the keeper holds. Nothing has changed after it. It is forgotten
	// with the worker that made the call.
	MethodPrepare = "Prepare"
	// MethodCommit makes the keeper go on as the program of the last Prepare. It is answered only if that fails; else the worker, which must have
	// stopped to work, is ended by what the keeper has become.
	MethodCommit = "Commit"
)

// Names of descriptors in a holding.
const (
	PIDFD  = "pidfd"
	Stdin  = "stdin"  // the end we write
	Stdout = "stdout" // the end we read
	Stderr = "stderr" // the end we read
	PTY    = "pty"    // the master
	// ExecSocket is a socket from which the pidfd of an exec can be received: the process sends it itself, before it
	// runs anything of the user's.
	ExecSocket = "exec"
)

// Holding is the request of MethodHold, and tells of a holding in a Note. Its descriptors come with the frame, in the
// order of Names.
type Holding struct {
	Key       string   `json:"key"`
	PID       int      `json:"pid,omitempty"`
	StartTime uint64   `json:"startTime,omitempty"`
	Names     []string `json:"names"`
}

// DropRequest is the request of MethodDrop.
type DropRequest struct {
	Key   string   `json:"key"`
	Names []string `json:"names"`
}

// ReleaseRequest is the request of MethodRelease.
type ReleaseRequest struct {
	Key string `json:"key"`
}

// PrepareRequest is the request of MethodPrepare. One descriptor comes with it, the program, opened for reading.
type PrepareRequest struct {
	// Env is the environment of the program.
	Env []string `json:"env"`
}

// PrepareResponse says which program it is.
type PrepareResponse struct {
	Build string `json:"build"`
}

// Note precedes the answer of MethodWatch. One of its fields is set.
type Note struct {
	Holding *Holding `json:"holding,omitempty"`
	Synced  bool     `json:"synced,omitempty"`
	// Retired comes with Synced: the pid of a former program's worker, which waits for its end; 0: there is none.
	Retired int           `json:"retired,omitempty"`
	Exit    *journal.Exit `json:"exit,omitempty"` // journalled already, if that was possible
}

// Client is the worker's side.
type Client struct{ conn *protocol.Conn }

// NewClient speaks on conn.
func NewClient(conn *protocol.Conn) *Client { return &Client{conn} }

// Done is closed when the keeper is gone.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Watch calls f for each note, until the keeper or ctx ends. f owns the descriptors, and must not call the keeper.
func (c *Client) Watch(ctx context.Context, f func(Note, []protocol.FD)) error {
	return c.conn.Call(ctx, protocol.Outgoing{Method: MethodWatch, Body: struct{}{},
		OnNote: func(body json.RawMessage, fds []protocol.FD) {
			var n Note
			if err := json.Unmarshal(body, &n); err != nil {
				protocol.CloseFDs(fds) // it cannot happen between two halves of one binary
				return
			}
			f(n, fds)
		}}, nil)
}

// Begin returns when no other worker is there.
func (c *Client) Begin(ctx context.Context) error {
	return c.conn.Call(ctx, protocol.Outgoing{Method: MethodBegin, Body: struct{}{}}, nil)
}

// Hold returns when the keeper has the descriptors; they stay the caller's too.
func (c *Client) Hold(ctx context.Context, h Holding, fds ...protocol.FD) error {
	if len(h.Names) != len(fds) {
		return fmt.Errorf("hold %s: %d names for %d descriptors", h.Key, len(h.Names), len(fds))
	}
	return c.conn.Call(ctx, protocol.Outgoing{Method: MethodHold, Body: h, FDs: fds}, nil)
}

// Drop makes the keeper close some descriptors.
func (c *Client) Drop(ctx context.Context, key string, names ...string) error {
	return c.conn.Call(ctx, protocol.Outgoing{Method: MethodDrop, Body: DropRequest{key, names}}, nil)
}

// Release makes the keeper forget a holding.
func (c *Client) Release(ctx context.Context, key string) error {
	return c.conn.Call(ctx, protocol.Outgoing{Method: MethodRelease, Body: ReleaseRequest{key}}, nil)
}

// Ready tells the keeper that this worker serves.
func (c *Client) Ready(ctx context.Context) error {
	return c.conn.Call(ctx, protocol.Outgoing{Method: MethodReady, Body: struct{}{}}, nil)
}

// Shutdown tells the keeper to end when this worker has.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.conn.Call(ctx, protocol.Outgoing{Method: MethodShutdown, Body: struct{}{}}, nil)
}

// Prepare asks another program whether it can go on as the keeper.
func (c *Client) Prepare(ctx context.Context, req PrepareRequest, program protocol.FD) (resp PrepareResponse, err error) {
	err = c.conn.Call(ctx, protocol.Outgoing{Method: MethodPrepare, Body: req, FDs: []protocol.FD{program}}, &resp)
	return resp, err
}

// Commit makes the keeper go on as that program. It returns only if that fails, or when the keeper dies.
func (c *Client) Commit(ctx context.Context) error {
	err := c.conn.Call(ctx, protocol.Outgoing{Method: MethodCommit, Body: struct{}{}}, nil)
	if err == nil {
		err = errors.New("the keeper has answered, and should have become another program")
	}
	return err
}
