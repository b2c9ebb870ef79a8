// Package alloc gives out what two services must never have at once: addresses (Book), and ports (Pool).
//
// A Pool is no durable state: it says in memory who has what according to the stored services, and is filled from them (Pool.Fill). What a service
// is to get is claimed first, then the service is stored, and only then is the claim committed, or dropped when it is certain that nothing was stored. So
// at no time does the store have two services with one value, wherever the process ends.
package alloc

import (
	"errors"
	"sync"
)

// The errors of a claim.
var (
	ErrTaken   = errors.New("is already allocated")
	ErrOutside = errors.New("is not in the valid range")
	ErrFull    = errors.New("range is full")
)

// Values are what a pool gives out, by their places from 0 to Size. The places below Static are for those who name the value that they want: one that is not
// named is of the others, as long as there is one (KEP-3070, KEP-3668).
type Values[K comparable] struct {
	Size, Static int
	At           func(place int) K
	Has          func(value K) bool
}

// Pool says who has which value. It is safe for concurrent use.
type Pool[K comparable] struct {
	values Values[K]

	mu      sync.Mutex
	holders map[K]*holder
	// clock counts claims and commits.
	clock uint64
}

type holder struct {
	owner string
	// since is the clock when the claim was made, or committed; pending: it is not known yet whether the owner was stored.
	since   uint64
	pending bool
}

// New makes a pool of which nothing is given out.
func New[K comparable](values Values[K]) *Pool[K] {
	return &Pool[K]{values: values, holders: map[K]*holder{}}
}

// Claim is a value that is held for an owner while it is being stored.
type Claim[K comparable] struct {
	Value  K
	pool   *Pool[K]
	holder *holder
}

// Take claims a value. The claim is nil where the owner has it already.
func (p *Pool[K]) Take(owner string, value K) (*Claim[K], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch h := p.holders[value]; {
	case h != nil && h.owner == owner:
		return nil, nil
	case h != nil:
		return nil, ErrTaken
	case !p.values.Has(value):
		return nil, ErrOutside
	}
	return p.claim(owner, value), nil
}

// Next claims a value that is free.
func (p *Pool[K]) Next(owner string) (*Claim[K], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, band := range [][2]int{{p.values.Static, p.values.Size}, {0, p.values.Static}} {
		if value, ok := search(p.values.At, band[0], band[1], func(v K) bool { return p.holders[v] == nil }); ok {
			return p.claim(owner, value), nil
		}
	}
	return nil, ErrFull
}

func (p *Pool[K]) claim(owner string, value K) *Claim[K] {
	p.clock++
	h := &holder{owner: owner, since: p.clock, pending: true}
	p.holders[value] = h
	return &Claim[K]{Value: value, pool: p, holder: h}
}

// Commit: the owner was stored, or it may have been and Settle is to tell.
func (c *Claim[K]) Commit() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.clock++
	c.holder.since, c.holder.pending = c.pool.clock, false
}

// Drop: the owner was not stored.
func (c *Claim[K]) Drop() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.pool.holders[c.Value] == c.holder {
		delete(c.pool.holders, c.Value)
	}
}

// Release gives back a value that an owner has no more.
func (p *Pool[K]) Release(owner string, value K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.holders[value]; h != nil && h.owner == owner {
		delete(p.holders, value)
	}
}

// Fill notes what owners have that were stored before the pool was made.
func (p *Pool[K]) Fill(stored map[K]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for value, owner := range stored {
		p.holders[value] = &holder{owner: owner}
	}
}

// Clock is the time of the pool, for Settle.
func (p *Pool[K]) Clock() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock
}

// Settle takes back what was committed in doubt: of the claims that were committed up to a time of the clock those whose owners are not among what the
// store held at that time, or later.
func (p *Pool[K]) Settle(at uint64, stored map[K]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for value, h := range p.holders {
		if h.since <= at && !h.pending && stored[value] != h.owner {
			delete(p.holders, value)
		}
	}
}

// Held is how many values are given out.
func (p *Pool[K]) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.holders)
}
