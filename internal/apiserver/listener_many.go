package apiserver

import (
	"net"
	"sync"
)

// many is one listener of several: the first one's address is its own.
type many struct {
	first    net.Listener
	accepted chan accepted
	closed   chan struct{}
	tasks    sync.WaitGroup

	mu  sync.Mutex
	all []net.Listener
}

type accepted struct {
	conn net.Conn
	err  error
}

func newMany(first net.Listener) *many {
	m := &many{first: first, accepted: make(chan accepted), closed: make(chan struct{})}
	m.add(first)
	return m
}

// add has connections of another listener accepted. It is not called after Close.
func (m *many) add(l net.Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, l)
	m.tasks.Go(func() {
		for {
			conn, err := l.Accept()
			select {
			case m.accepted <- accepted{conn, err}:
			case <-m.closed:
				if conn != nil {
					_ = conn.Close() // nobody will serve it
				}
				return
			}
		}
	})
}

// Accept implements net.Listener.
func (m *many) Accept() (net.Conn, error) {
	select {
	case a := <-m.accepted:
		return a.conn, a.err
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *many) Close() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.closed:
		return net.ErrClosed
	default:
		close(m.closed)
	}
	for _, l := range m.all {
		if e := l.Close(); err == nil {
			err = e
		}
	}
	m.tasks.Wait()
	return err
}

// Addr implements net.Listener.
func (m *many) Addr() net.Addr { return m.first.Addr() }
