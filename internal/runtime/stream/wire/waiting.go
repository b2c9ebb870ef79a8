package wire

import (
	"net"
	"net/http"
	"sync"
)

const (
	// maxWaiting bounds the connections that have not presented a token yet, for every process of the host can open one. Users other
	// than root have half of them together, and each of them no more than maxWaitingOfUser: so none keeps root's clients, which kubelets
	// and nodes are, or another user's from being heard, not even one who has a range of subordinate users.
	maxWaiting         = 256
	maxWaitingOfOthers = maxWaiting / 2
	maxWaitingOfUser   = 32
)

// waiting counts the connections that have not presented a token, by who has opened them. The zero value is ready to use.
type waiting struct {
	mu     sync.Mutex
	conns  map[net.Conn]client
	users  map[uint32]int // but root's
	others int            // of all users but root
}

// client is who has opened a connection. One who cannot be found has gone again, or is on a kernel that does not say: such count together
// with the users, and not as one of them.
type client struct {
	uid   uint32
	known bool
}

func (c client) isRoot() bool { return c.known && c.uid == 0 }

// take counts a connection, and says no when it is one too many.
func (w *waiting) take(conn net.Conn, who client) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.conns) >= maxWaiting || !who.isRoot() && w.others >= maxWaitingOfOthers || who.known && w.users[who.uid] >= maxWaitingOfUser {
		return false
	}
	if w.conns == nil {
		w.conns, w.users = map[net.Conn]client{}, map[uint32]int{}
	}
	w.conns[conn] = who
	if !who.isRoot() {
		w.others++
		if who.known {
			w.users[who.uid]++
		}
	}
	return true
}

// leave stops counting a connection. One that was not taken, or has left before, is none.
func (w *waiting) leave(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	who, ok := w.conns[conn]
	if !ok {
		return
	}
	delete(w.conns, conn)
	if who.isRoot() {
		return
	}
	w.others--
	if !who.known {
		return
	}
	if w.users[who.uid]--; w.users[who.uid] == 0 {
		delete(w.users, who.uid)
	}
}

func (w *waiting) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// limit closes connections that are one too many. Those that were taken over have shown a token, and do not count.
func (s *Server) limit(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if who := s.clientOf(c); !s.waiting.take(c, who) {
			s.cfg.Log.Debug("a connection is one too many", "uid", who.uid, "known", who.known)
			c.Close()
		}
	case http.StateHijacked, http.StateClosed:
		s.waiting.leave(c)
	}
}

func (s *Server) clientOf(c net.Conn) client {
	local, ok1 := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 || s.owners == nil {
		return client{}
	}
	uid, err := s.owners.TCPOwner(remote.AddrPort(), local.AddrPort())
	if err != nil {
		return client{}
	}
	return client{uid: uid, known: true}
}
