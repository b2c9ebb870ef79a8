package apiserver

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"

	"monopod.dev/monopod/internal/kit/preauth"
)

// listener remembers its connections, so that the end of the server is theirs, too: the library's HTTP server waits for
// idle ones for a while and then leaves them, and it does not know of those that carry a stream (exec, port-forward).
type listener struct {
	*preauth.Listener
	// many are the listeners that connections come from.
	many *many

	mu sync.Mutex
	// conns are the open connections; nil after closeAll.
	conns map[net.Conn]bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	t := &conn{Conn: c, listener: l}
	l.conns[t] = true
	return t, nil
}

// cut closes every connection that is open now.
func (l *listener) cut() {
	l.mu.Lock()
	open := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	closeEach(open)
}

// closeAll closes the listener and every connection, for good.
func (l *listener) closeAll() error {
	err := l.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // the HTTP server was first
	}
	l.mu.Lock()
	open := slices.Collect(maps.Keys(l.conns))
	l.conns = nil // one that is being accepted now is closed by Accept
	l.mu.Unlock()
	closeEach(open)
	return err
}

func closeEach(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close() // it is cut; that the peer was first is as good
	}
}

type conn struct {
	net.Conn
	listener *listener
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
