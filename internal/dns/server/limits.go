package server

import (
	"net/netip"
	"sync"
)

// Limits bound what clients can have of the server at a time.
type Limits struct {
	// Waiting are questions that others are asked, PerClient those of one client; 0: 1024 and 128.
	Waiting, WaitingPerClient int
	// Connections are TCP connections, ConnectionsPerClient those of one client; 0: 256 and 32.
	Connections, ConnectionsPerClient int
}

func (l *Limits) fill() {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&l.Waiting, 1024)
	set(&l.WaitingPerClient, 128)
	set(&l.Connections, 256)
	set(&l.ConnectionsPerClient, 32)
}

// places are what clients have of something of which there is a bounded number.
type places struct {
	all, each int

	mu    sync.Mutex
	taken int
	by    map[netip.Addr]int
}

func newPlaces(all, each int) *places { return &places{all: all, each: each, by: map[netip.Addr]int{}} }

// take takes a place for a client, if there is one.
func (p *places) take(client netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.all || p.by[client] >= p.each {
		return false
	}
	p.taken++
	p.by[client]++
	return true
}

// give gives a place back.
func (p *places) give(client netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.by[client]--; p.by[client] == 0 {
		delete(p.by, client)
	}
}
