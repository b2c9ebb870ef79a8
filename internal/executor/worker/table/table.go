//go:build cgo

// Package table is the containers that a worker knows: the right to change each, its record, and who is told when that changes.
//
// It knows nothing of how containers are made or watched. Whoever does that sets what others need to find: the process, what moves its output.
package table

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/kit/ids"
)

// Records stores records; see record.Store.
type Records interface {
	// Put writes a record, whole or not at all.
	Put(r record.Record) error
}

// Table is the containers that there are, and the only one who changes their records: it stores them, shows them, and tells of what has changed, in
// this order.
type Table struct {
	records Records
	hub     *hub

	mu         sync.Mutex
	containers map[ids.ContainerID]*Container
	closed     bool
}

// New returns an empty table.
func New(records Records) *Table {
	return &Table{records: records, hub: newHub(), containers: map[ids.ContainerID]*Container{}}
}

// Ping returns when nobody holds the lock that all calls need.
func (t *Table) Ping() {
	t.mu.Lock()
	defer t.mu.Unlock()
}

// Get returns the container of that id, which may not exist yet.
func (t *Table) Get(id ids.ContainerID) (*Container, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.containers[id]
	if c == nil {
		return nil, fmt.Errorf("%w: container %q", errdefs.ErrNotFound, id)
	}
	return c, nil
}

// All returns all containers.
func (t *Table) All() (cs []*Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.containers {
		cs = append(cs, c)
	}
	return cs
}

// Existing returns a container that has been created and not deleted.
func (t *Table) Existing(id ids.ContainerID) (*Container, error) {
	c, err := t.Get(id)
	if err != nil {
		return nil, err
	}
	return c, c.Present()
}

// Lock returns a container that exists, and the right to change it.
func (t *Table) Lock(ctx context.Context, id ids.ContainerID) (c *Container, release func(), err error) {
	if c, err = t.Get(id); err != nil {
		return nil, nil, err
	}
	if release, err = c.Take(ctx); err != nil {
		return nil, nil, err
	}
	if err := c.Present(); err != nil {
		release()
		return nil, nil, err
	}
	return c, release, nil
}

// Reserve returns the container of that id, a new one if there is none, and the right to change it.
func (t *Table) Reserve(ctx context.Context, id ids.ContainerID) (*Container, func(), error) {
	for {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return nil, nil, fmt.Errorf("%w: the executor is shutting down", errdefs.ErrFailedPrecondition)
		}
		c := t.containers[id]
		if c == nil {
			c = newContainer(id)
			t.containers[id] = c
		}
		t.mu.Unlock()
		release, err := c.Take(ctx)
		if err != nil {
			return nil, nil, err
		}
		c.mu.Lock()
		gone := c.gone
		c.mu.Unlock()
		if !gone {
			return c, release, nil
		}
		release() // deleted while we waited
	}
}

// Add puts a container into the table that a worker before this one has recorded.
func (t *Table) Add(r record.Record) *Container {
	c := newContainer(r.ID)
	c.stored, c.shown = r, r
	t.put(c)
	return c
}

// AddUnborn puts one into it that does not exist: Reserve waits for who has the right to it.
func (t *Table) AddUnborn(id ids.ContainerID) *Container {
	c := newContainer(id)
	t.put(c)
	return c
}

func (t *Table) put(c *Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.containers[c.ID] = c
}

// Forget takes the container out of the table. What others still have of it is gone.
func (t *Table) Forget(c *Container) {
	c.forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.containers[c.ID] == c {
		delete(t.containers, c.ID)
	}
}

// Delete forgets a container of which nothing is left, and tells of it.
func (t *Table) Delete(c *Container) {
	t.Forget(c)
	t.hub.publish(c.ID, protocol.Event{Deleted: c.ID})
}

// Close has Reserve return an error: nothing new is made.
func (t *Table) Close() { t.setClosed(true) }

// Open ends what Close has begun.
func (t *Table) Open() { t.setClosed(false) }

func (t *Table) setClosed(closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = closed
}

// Change stores what f makes of the record, then shows it, then tells of it. After an error nothing has changed. What has been written and is
// not shown yet stays so: f is called for either record.
func (t *Table) Change(c *Container, f func(*record.Record)) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := t.write(c, f); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.shown
	f(&next)
	t.show(c, next)
	return nil
}

// Amend is Change for what is so, whether it can be stored or not: it is shown after an error, too, with all that has been written before.
func (t *Table) Amend(c *Container, f func(*record.Record)) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	err := t.write(c, f)
	if err != nil {
		f(&c.stored)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.show(c, c.stored)
	return err
}

// Write stores what f makes of the record without showing it, for a successor that has to expect it.
func (t *Table) Write(c *Container, f func(*record.Record)) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return t.write(c, f)
}

// Show shows what has been written.
func (t *Table) Show(c *Container) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.show(c, c.stored)
}

// write stores what f makes of the record. The caller holds c.writing.
func (t *Table) write(c *Container, f func(*record.Record)) error {
	next := c.stored
	f(&next)
	if err := t.records.Put(next); err != nil {
		return err
	}
	c.stored = next
	return nil
}

// show makes a record the present one and tells of it. The caller holds c.mu.
func (t *Table) show(c *Container, next record.Record) {
	before, after := c.shown.State(), next.State()
	c.shown = next
	if next.CreatedAt.IsZero() || before.Phase == after.Phase && before.CreatedAt.Equal(after.CreatedAt) {
		return // nothing that a client could see
	}
	t.hub.publish(c.ID, protocol.Event{Container: &after})
}

// States returns the states of all containers that exist.
func (t *Table) States() []protocol.ContainerState {
	states := []protocol.ContainerState{}
	for _, c := range t.All() {
		if c.Present() == nil {
			rec := c.Record()
			states = append(states, rec.State())
		}
	}
	return states
}

// Subscribe sends the states of all containers, and then each that changes, until ctx ends. What waits for a slow subscriber is at most
// one event a container: the newest.
func (t *Table) Subscribe(ctx context.Context, send func(protocol.Event) error) error {
	return t.hub.subscribe(ctx, t.States, send)
}
