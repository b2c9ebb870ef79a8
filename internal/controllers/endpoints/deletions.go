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

func (d *deletions) add(service any) {
	name, err := cache.ObjectToName(service)
	if err != nil {
		return // no object was known of it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		d.names = map[cache.ObjectName]bool{}
	}
	d.names[name] = true
}

func (d *deletions) has(name cache.ObjectName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[name]
}

func (d *deletions) remove(name cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, name)
}
