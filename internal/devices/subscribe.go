package devices

import "sync"

// subscribers are told that something has changed. The zero value has none.
type subscribers struct {
	mu  sync.Mutex
	all map[chan struct{}]bool
}

// Subscribe returns a channel that ticks when Resources, Devices or Grants may have changed, or when Admit may decide otherwise about a pod
// that is held. One tick stands for any number of changes. stop ends it.
func (m *Manager) Subscribe() (ticks <-chan struct{}, stop func()) {
	s := &m.subscribers
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[chan struct{}]bool{}
	}
	s.all[c] = true
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, c)
	}
}

func (s *subscribers) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
