package kinds

import (
	"context"
	"fmt"
	"sync"
)

// calls bounds how many calls wait for servers at a time: each holds a thread of this process while it does, and a process that has 10,000 threads is ended by its runtime, with all that it
// does for other pods. All who have more to ask wait, which costs no thread.
type calls struct {
	each int           // how many may wait for one server
	all  chan struct{} // one value for each call

	mu      sync.Mutex // guards what follows
	servers map[string]*callsOf
}

// callsOf are the calls that wait for one server.
type callsOf struct {
	all   chan struct{}
	users int // whose calls they are, and who wait for their turn; guarded by calls.mu
}

func newCalls(most, each int) *calls {
	return &calls{each: each, all: make(chan struct{}, most), servers: map[string]*callsOf{}}
}

// begin waits until one more call may be made, or for the end of ctx. end is called when the call has returned, however long that takes.
func (c *calls) begin(ctx context.Context, server string) (end func(), err error) {
	of := c.enter(server)
	if !put(ctx, of.all) {
		c.leave(server, of)
		return nil, fmt.Errorf("%d calls wait for the server's answer already; it is tried again", c.each)
	}
	if !put(ctx, c.all) {
		<-of.all
		c.leave(server, of)
		return nil, fmt.Errorf("%d calls wait for the answers of servers already; it is tried again", cap(c.all))
	}
	return func() {
		<-c.all
		<-of.all
		c.leave(server, of)
	}, nil
}

// put puts a value into a channel, at once if it can, else unless ctx ends first.
func put(ctx context.Context, into chan<- struct{}) bool {
	select {
	case into <- struct{}{}:
		return true
	default:
	}
	select {
	case into <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *calls) enter(server string) *callsOf {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.servers[server]
	if of == nil {
		of = &callsOf{all: make(chan struct{}, c.each)}
		c.servers[server] = of
	}
	of.users++
	return of
}

func (c *calls) leave(server string, of *callsOf) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.users--; of.users == 0 {
		delete(c.servers, server)
	}
}
