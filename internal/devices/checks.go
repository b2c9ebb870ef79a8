package devices

import (
	"fmt"
	"sync"

	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

// checks asks sources whether their devices can be used, and remembers those that failed their last check.
type checks struct {
	subscribers *subscribers

	mu     sync.Mutex
	failed map[book.Key]error
}

// check asks the source of a device, and tells those who look on of another answer.
func (c *checks) check(src source.Source, d inventory.Device, inUse bool) error {
	err := src.Check(d.Resource, d.Name, inUse)
	c.mu.Lock()
	was := c.failed[book.KeyOf(d)]
	if err == nil {
		delete(c.failed, book.KeyOf(d))
	} else {
		c.failed[book.KeyOf(d)] = err
	}
	c.mu.Unlock()
	if fmt.Sprint(was) != fmt.Sprint(err) {
		c.subscribers.tell(book.Watchers)
	}
	return err
}

// of is what was wrong with a device; nil: nothing, or it was not looked at.
func (c *checks) of(d inventory.Device) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed[book.KeyOf(d)]
}

// forget forgets all: what was wrong may be mended, and the next grant looks again.
func (c *checks) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.failed)
}
