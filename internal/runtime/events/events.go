// Package events hands the runtime's events to those who listen.
//
// Each listener gets every event that is published after it subscribed, in order, once. A listener that does not read
// blocks nobody: when its buffer is full it is dropped, and its channel closed, so that it knows that it has to list and
// subscribe again.
package events

import (
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// buffer is how many events a listener may be behind.
const buffer = 1024

// Hub is safe for concurrent use; its zero value is usable.
type Hub struct {
	mu        sync.Mutex
	listeners map[*Listener]struct{}
}

// Listener is one subscription.
type Listener struct {
	hub *Hub
	c   chan *cri.ContainerEventResponse
}

// C delivers the events. It is closed when the listener was too slow, or was closed.
func (l *Listener) C() <-chan *cri.ContainerEventResponse { return l.c }

// Close ends the subscription.
func (l *Listener) Close() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.hub.drop(l)
}

// Subscribe begins a subscription.
func (h *Hub) Subscribe() *Listener {
	l := &Listener{hub: h, c: make(chan *cri.ContainerEventResponse, buffer)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[*Listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	return l
}

// Idle says that nobody listens.
func (h *Hub) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) == 0
}

// Publish hands an event to all listeners.
func (h *Hub) Publish(e *cri.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		select {
		case l.c <- e:
		default:
			h.drop(l)
		}
	}
}

func (h *Hub) drop(l *Listener) {
	if _, ok := h.listeners[l]; ok {
		delete(h.listeners, l)
		close(l.c)
	}
}
