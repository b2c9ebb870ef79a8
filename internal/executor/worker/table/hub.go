//go:build cgo

package table

import (
	"context"
	"sync"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// hub passes events to subscribers. What waits for a slow one is at most one event a container: the newest.
type hub struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
}

type subscriber struct {
	order []ids.ContainerID // ids with a pending event, the oldest first
	next  map[ids.ContainerID]protocol.Event
	wake  chan struct{} // buffered 1
}

func newHub() *hub { return &hub{subs: map[*subscriber]struct{}{}} }

// publish never waits. Callers order the events of one container by holding its lock.
func (h *hub) publish(id ids.ContainerID, ev protocol.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.add(id, ev)
	}
}

func (s *subscriber) add(id ids.ContainerID, ev protocol.Event) {
	if _, pending := s.next[id]; !pending {
		s.order = append(s.order, id)
	}
	s.next[id] = ev
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// subscribe sends events until ctx ends. initial is asked after the subscription has begun, so that nothing falls between.
func (h *hub) subscribe(ctx context.Context, initial func() []protocol.ContainerState, send func(protocol.Event) error) error {
	s := &subscriber{next: map[ids.ContainerID]protocol.Event{}, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	h.subs[s] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.subs, s)
		h.mu.Unlock()
	}()
	for _, state := range initial() {
		if err := send(protocol.Event{Container: &state}); err != nil {
			return err
		}
	}
	if err := send(protocol.Event{Synced: true}); err != nil {
		return err
	}
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		for {
			ev, ok := h.pop(s)
			if !ok {
				break
			}
			if err := send(ev); err != nil {
				return err
			}
		}
	}
}

func (h *hub) pop(s *subscriber) (ev protocol.Event, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(s.order) == 0 {
		return ev, false
	}
	id := s.order[0]
	s.order = s.order[1:]
	ev = s.next[id]
	delete(s.next, id)
	return ev, true
}
