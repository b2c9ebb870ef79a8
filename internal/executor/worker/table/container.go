//go:build cgo

package table

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/executor/worker/execution"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
)

// Container is one container, and all that this worker has of it.
//
// The right that Take gives serializes what changes it: Create, Start, Update, Delete. Kill, Exec and Attach do not take it, so that a kill
// overtakes a Start that hangs.
//
// Its record is there twice, as it is stored and as it is shown, for what a successor must expect may be too early to be told: that the program
// runs. Only the Table writes either. No lock but writing is held while something is written, so a slow disk holds up nobody who looks.
type Container struct {
	ID ids.ContainerID

	op     chan struct{} // holds one token
	ended  chan struct{} // closed when the process has ended
	exited chan struct{} // closed when the exit is recorded and published

	writing sync.Mutex    // one write after the other; taken before mu
	stored  record.Record // what was written last; writing guards it

	mu     sync.Mutex // orders the container's events, too
	shown  record.Record
	gone   bool     // deleted, or never came to be
	pidfd  *proc.FD // nil: no process, or it has ended
	io     *stdio.Stdio
	execs  map[ids.ExecID]*execution.Execution
	memory io.Closer // of what has made it; nil: none
}

func newContainer(id ids.ContainerID) *Container {
	c := &Container{ID: id, op: make(chan struct{}, 1), ended: make(chan struct{}), exited: make(chan struct{}), execs: map[ids.ExecID]*execution.Execution{}}
	c.op <- struct{}{}
	return c
}

// Take waits for the right to change the container.
func (c *Container) Take(ctx context.Context) (release func(), err error) {
	select {
	case <-c.op:
		return func() { c.op <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("container %q is busy with another operation: %w", c.ID, ctx.Err())
	}
}

// Record returns the record as it is shown.
func (c *Container) Record() record.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown
}

// Present is NotFound for a container that is gone, or does not exist yet.
func (c *Container) Present() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.shown.CreatedAt.IsZero() {
		return fmt.Errorf("%w: container %q", errdefs.ErrNotFound, c.ID)
	}
	return nil
}

// Ended is closed when the container's process has ended, by SetEnded, which is called once.
func (c *Container) Ended() <-chan struct{} { return c.ended }

// SetEnded says that the process has ended.
func (c *Container) SetEnded() { close(c.ended) }

// Exited is closed when the container's exit is recorded and published, by SetExited, which is called once.
func (c *Container) Exited() <-chan struct{} { return c.exited }

// SetExited says that the exit is known.
func (c *Container) SetExited() { close(c.exited) }

// Process returns the pidfd of the container's first process; nil: there is none, or it has ended. It is closed when that ends.
func (c *Container) Process() *proc.FD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pidfd
}

// SetProcess sets what Process returns, and does not close what it has returned before.
func (c *Container) SetProcess(fd *proc.FD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pidfd = fd
}

// DupProcess returns a duplicate of the first process's pidfd, the caller's, and its pid.
func (c *Container) DupProcess() (pid, fd int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd == nil {
		return 0, -1, fmt.Errorf("%w: container %s has exited", errdefs.ErrFailedPrecondition, c.ID)
	}
	fd, err = c.pidfd.Dup()
	return c.shown.PID, fd, err
}

// Stdio returns what moves the container's output; nil: it has none, or is being deleted.
func (c *Container) Stdio() *stdio.Stdio {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.io
}

// SetStdio sets what Stdio returns.
func (c *Container) SetStdio(s *stdio.Stdio) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.io = s
}

// Remember returns what the one that has made the container remembers of it: fresh makes it, at the first call. It is closed when the
// container is forgotten.
func (c *Container) Remember(fresh func() io.Closer) io.Closer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory == nil {
		m := fresh()
		if c.gone {
			return m
		}
		c.memory = m
	}
	return c.memory
}

// BeginExec makes an execution known, if the container runs and has none of that id.
func (c *Container) BeginExec(id ids.ExecID, x *execution.Execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.shown.Kind != "":
		return c.shown.CheckContainer()
	case c.gone || c.shown.Phase() != protocol.Running:
		return fmt.Errorf("%w: container %s does not run (%s)", errdefs.ErrFailedPrecondition, c.ID, c.shown.Phase())
	case c.execs[id] != nil:
		return fmt.Errorf("%w: container %s has an exec %q already", errdefs.ErrAlreadyExists, c.ID, id)
	}
	c.execs[id] = x
	return nil
}

// EndExec forgets an execution.
func (c *Container) EndExec(id ids.ExecID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.execs, id)
}

// Exec returns the execution of that id, or NotFound.
func (c *Container) Exec(id ids.ExecID) (*execution.Execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.execs[id]
	if x == nil {
		return nil, fmt.Errorf("%w: container %s has no exec %q", errdefs.ErrNotFound, c.ID, id)
	}
	return x, nil
}

// Execs returns all executions.
func (c *Container) Execs() (xs []*execution.Execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.execs {
		xs = append(xs, x)
	}
	return xs
}

// forget makes the container one that is gone.
func (c *Container) forget() {
	c.mu.Lock()
	c.gone = true
	m := c.memory
	c.memory = nil
	c.mu.Unlock()
	if m != nil {
		m.Close()
	}
}
