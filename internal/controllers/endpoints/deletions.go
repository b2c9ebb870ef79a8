package endpoints

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// deletions are names of services that were seen to go.
type deletions struct {
	mu    sync.Mutex
	names map[cache.ObjectName]bool
}

func (d *deletions) add(name cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		d.names = map[cache.ObjectName]bool{}
	}
	d.names[name] = true
}

// take says whether a name is one of them, which it is no longer.
func (d *deletions) take(name cache.ObjectName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	is := d.names[name]
	delete(d.names, name)
	return is
}
