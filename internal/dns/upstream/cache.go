package upstream

import (
	"container/list"
	"sync"
	"time"

	"monopod.dev/monopod/internal/dns/message"
)

// cache keeps replies of others for as long as they may be kept. It is bounded by entries and by bytes: what was not asked for the longest
// goes first. Nothing wakes for it: what is too old is found to be so when it is asked for, or goes as what was not asked for.
type cache struct {
	maxEntries, maxBytes int

	mu      sync.Mutex
	entries map[message.Key]*list.Element
	order   *list.List // the one that was asked for last is at the front
	bytes   int
}

type cached struct {
	key   message.Key
	reply *message.Foreign
	since time.Time
}

func (c *cached) size() int { return c.reply.Size() + len(c.key.Name) + entrySize }

// entrySize is about what an entry takes beside its reply and its name.
const entrySize = 256

func newCache(entries, bytes int) *cache {
	return &cache{maxEntries: entries, maxBytes: bytes, entries: map[message.Key]*list.Element{}, order: list.New()}
}

// get returns a reply that is good still, and how old it is.
func (c *cache) get(k message.Key, now time.Time) (*message.Foreign, time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.entries[k]
	if el == nil {
		return nil, 0, false
	}
	e := el.Value.(*cached)
	age := now.Sub(e.since)
	if age < 0 || age >= e.reply.Keep {
		c.remove(el)
		return nil, 0, false
	}
	c.order.MoveToFront(el)
	return e.reply, age, true
}

// put keeps a reply, if it may be kept and is no large part of all there is room for.
func (c *cache) put(k message.Key, reply *message.Foreign, now time.Time) {
	e := &cached{k, reply, now}
	if reply.Keep <= 0 || e.size() > c.maxBytes/16 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.entries[k]; el != nil {
		c.remove(el)
	}
	c.entries[k] = c.order.PushFront(e)
	c.bytes += e.size()
	for len(c.entries) > c.maxEntries || c.bytes > c.maxBytes {
		c.remove(c.order.Back())
	}
}

// remove is called with the lock held.
func (c *cache) remove(el *list.Element) {
	e := c.order.Remove(el).(*cached)
	delete(c.entries, e.key)
	c.bytes -= e.size()
}
