//go:build cgo

package worker

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// container is one container.
//
// op serializes what changes it: Create, Start, Delete. Kill, Exec and Attach do not take it, so that a kill overtakes
// a Start that hangs. mu guards the fields below it, and orders the container's events.
type container struct {
	id     string
	op     chan struct{} // holds one token
	ended  chan struct{} // closed when the process has ended
	exited chan struct{} // closed when the exit is recorded and published
	late   lateness      // of its commands' starts

	mu    sync.Mutex
	rec   record.Record
	gone  bool     // deleted, or never came to be
	pidfd *proc.FD // nil: no process, or it has ended
	io    *stdio.Stdio
	execs map[string]*execution
	// status tells what becomes of a spawned process that is not let go yet; nil: unknown, or told.
	status *os.File
	kept   *spawn.Kept // what execs need to know; nil: not loaded yet
}

func newContainer(id string) *container {
	c := &container{id: id, op: make(chan struct{}, 1), ended: make(chan struct{}), exited: make(chan struct{}), execs: map[string]*execution{}}
	c.op <- struct{}{}
	return c
}

// take waits for the right to change the container.
func (c *container) take(ctx context.Context) (release func(), err error) {
	select {
	case <-c.op:
		return func() { c.op <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("container %q is busy with another operation: %w", c.id, ctx.Err())
	}
}

// snapshot returns the record.
func (c *container) snapshot() record.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec
}

// present is NotFound for a container that is gone, or does not exist yet.
func (c *container) present() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.rec.CreatedAt.IsZero() {
		return fmt.Errorf("%w: container %q", errdefs.ErrNotFound, c.id)
	}
	return nil
}

// existing returns a container that has been created and not deleted.
func (w *Worker) existing(id string) (*container, error) {
	c, err := w.get(id)
	if err != nil {
		return nil, err
	}
	return c, c.present()
}

// lockExisting returns a container, and the right to change it.
func (w *Worker) lockExisting(ctx context.Context, id string) (c *container, release func(), err error) {
	if c, err = w.get(id); err != nil {
		return nil, nil, err
	}
	if release, err = c.take(ctx); err != nil {
		return nil, nil, err
	}
	if err := c.present(); err != nil {
		release()
		return nil, nil, err
	}
	return c, release, nil
}

// change persists what f makes of the record, then shows it, then tells of it.
func (w *Worker) change(c *container, f func(*record.Record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.rec
	f(&next)
	if err := w.store.Put(next); err != nil {
		return err
	}
	w.show(c, next)
	return nil
}

// show makes a record the present one and tells of it. The caller holds c.mu.
func (w *Worker) show(c *container, next record.Record) {
	before, after := c.rec.State(), next.State()
	c.rec = next
	if next.CreatedAt.IsZero() || before.Phase == after.Phase && before.CreatedAt.Equal(after.CreatedAt) {
		return // nothing that a client could see
	}
	w.hub.publish(c.id, protocol.Event{Container: &after})
}

// states returns the states of all containers that exist.
func (w *Worker) states() []protocol.ContainerState {
	states := []protocol.ContainerState{}
	for _, c := range w.all() {
		if c.present() == nil {
			rec := c.snapshot()
			states = append(states, rec.State())
		}
	}
	return states
}
