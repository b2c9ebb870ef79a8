package devices

import (
	"sync"

	"monopod.dev/monopod/internal/devices/book"
)

// subscribers are told that something has changed. The zero value has none.
type subscribers struct {
	mu  sync.Mutex
	all map[chan struct{}]bool // true: also of what changes nothing for anybody but those who look on
}

// Subscribe returns a channel that ticks when Resources or Devices may have changed, when devices were given back, or when Admit may decide
// otherwise about a pod that is held. One tick stands for any number of changes. stop ends it.
func (m *Manager) Subscribe() (ticks <-chan struct{}, stop func()) { return m.subscribers.add(false) }

// Watch is Subscribe for those who look on: it ticks also when a device was granted, or failed a check: nobody can wait for that.
func (m *Manager) Watch() (ticks <-chan struct{}, stop func()) { return m.subscribers.add(true) }

func (s *subscribers) add(watches bool) (ticks <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[chan struct{}]bool{}
	}
	s.all[c] = watches
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, c)
	}
}

// tell tells those whom news concern.
func (s *subscribers) tell(news book.News) {
	if news == book.None {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, watches := range s.all {
		if news == book.Watchers && !watches {
			continue
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
