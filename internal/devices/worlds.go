package devices

import (
	"slices"
	"sync"

	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

// worlds makes worlds of what the sources know, and keeps the last one as long as no source has a new snapshot.
type worlds struct {
	sources []source.Source // the earlier has a resource that two know

	mu    sync.Mutex
	parts []*inventory.Snapshot // of last
	last  *book.World
}

// named is the source of a name, nil when there is none.
func (w *worlds) named(name string) source.Source {
	for _, s := range w.sources {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

func (w *worlds) now() *book.World {
	parts := make([]*inventory.Snapshot, len(w.sources))
	for i, s := range w.sources {
		parts[i] = s.Snapshot()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil || !slices.Equal(parts, w.parts) {
		all := make([]book.Part, len(parts))
		for i, s := range w.sources {
			_, advises := s.(source.Adviser)
			_, lasts := s.(source.Lasting)
			all[i] = book.Part{Source: s.Name(), Snapshot: parts[i], Advises: advises, Lasts: lasts}
		}
		w.parts, w.last = parts, book.NewWorld(all...)
	}
	return w.last
}
