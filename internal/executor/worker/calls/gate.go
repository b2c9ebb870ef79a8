//go:build cgo

package calls

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
)

// gate is what calls go through that change something. It is shut for a handover, when nobody is inside; those who come then wait, and are lost with
// this worker, as by its death, or go on when it is opened again.
type gate struct {
	mu     sync.Mutex
	inside int
	opened chan struct{} // nil: it is open; else closed when it is again
	empty  chan struct{} // nil: nobody waits for that; else closed when nobody is inside
}

// enter waits until the gate is open.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		opened := g.opened
		if opened == nil {
			g.inside++
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// shut lets nobody in any more, and returns when all are out. After an error the gate is open.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	if g.opened != nil {
		g.mu.Unlock()
		return fmt.Errorf("%w: the executor is being handed over already", errdefs.ErrUnavailable)
	}
	g.opened = make(chan struct{})
	var empty chan struct{}
	if g.inside > 0 {
		empty = make(chan struct{})
		g.empty = empty
	}
	g.mu.Unlock()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		n := g.inside
		g.empty = nil
		g.mu.Unlock()
		g.open()
		return fmt.Errorf("%w: %d calls are being served, and do not end in time: %w", errdefs.ErrUnavailable, n, ctx.Err())
	}
}

// open ends what shut has begun.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
	g.opened = nil
}
