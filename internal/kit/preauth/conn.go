package preauth

import (
	"container/list"
	"net"
	"net/netip"
	"time"
)

// conn is a connection that is, or was, on probation.
type conn struct {
	net.Conn
	listener *Listener
	accepted time.Time
	ends     ends
	source   netip.Prefix

	// Guarded by listener.mu: place is where it stands among the strangers, nil once it is none; at until it is closed,
	// by timer, unless somebody's request is just being looked at (asking).
	place  *list.Element
	until  time.Time
	timer  *time.Timer
	asking int

	// records is of the one who reads; TLS reads one at a time.
	records records
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.records.last && c.records.read(p[:n]) {
		c.shookHands()
	}
	return n, err
}

// shookHands gives the client the rest of its time for the first request.
func (c *conn) shookHands() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.place != nil {
		c.wait(time.Until(c.accepted.Add(c.listener.limits.Header)))
	}
}

// wait gives the client so long from now. listener.mu is held.
func (c *conn) wait(d time.Duration) {
	c.until = time.Now().Add(d)
	c.timer.Reset(d)
}

// expire closes the connection if its time is over.
func (c *conn) expire() {
	c.listener.mu.Lock()
	over := c.place != nil && c.asking == 0 && !time.Now().Before(c.until)
	c.listener.mu.Unlock()
	if over {
		c.Close()
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
