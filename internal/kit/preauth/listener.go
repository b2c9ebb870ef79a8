package preauth

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Listener accepts connections on probation. Its Authenticator, through which the server finds out who sends a request,
// is what ends it.
type Listener struct {
	net.Listener
	limits Limits

	mu sync.Mutex // guards what follows, and the connections' fields that say so
	// strangers are the connections on probation (*conn), the one that has been idle for longest first.
	strangers list.List
	byEnds    map[ends]*conn
	ofSource  map[netip.Prefix]int
}

// ends tell an open connection from all others, as a request has them.
type ends struct{ local, remote string }

// New puts a listener's connections on probation.
func New(l net.Listener, limits Limits) *Listener {
	return &Listener{Listener: l, limits: limits.withDefaults(), byEnds: map[ends]*conn{}, ofSource: map[netip.Prefix]int{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{
		Conn: accepted, listener: l, accepted: time.Now(), source: sourceOf(accepted.RemoteAddr()),
		ends: ends{accepted.LocalAddr().String(), accepted.RemoteAddr().String()},
	}
	if out := l.admit(c); out != nil {
		out.Close()
	}
	return c, nil
}

// admit puts a connection on probation, and returns the one that has to go for it, if one has.
func (l *Listener) admit(c *conn) (out *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ofSource[c.source] >= l.limits.PerSource:
		out = l.longestIdle(func(o *conn) bool { return o.source == c.source })
	case l.strangers.Len() >= l.limits.Total:
		out = l.longestIdle(func(*conn) bool { return true })
	}
	if out != nil {
		l.drop(out)
	}
	c.place = l.strangers.PushBack(c)
	l.byEnds[c.ends] = c
	l.ofSource[c.source]++
	c.until = c.accepted.Add(l.limits.Handshake)
	c.timer = time.AfterFunc(l.limits.Handshake, c.expire)
	return out
}

// longestIdle is the connection that has waited for longest of those that are meant. Those whose request is just being
// looked at come last.
func (l *Listener) longestIdle(meant func(*conn) bool) (found *conn) {
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		c, _ := e.Value.(*conn)
		if !meant(c) {
			continue
		}
		if c.asking == 0 {
			return c
		}
		if found == nil {
			found = c
		}
	}
	return found
}

// drop takes a connection off probation, for whatever reason. It may be called again. l.mu is held.
func (l *Listener) drop(c *conn) {
	if c.place == nil {
		return
	}
	c.timer.Stop()
	l.strangers.Remove(c.place)
	c.place = nil
	if l.byEnds[c.ends] == c { // a client may have the port again whose connection was closed here
		delete(l.byEnds, c.ends)
	}
	if l.ofSource[c.source]--; l.ofSource[c.source] == 0 {
		delete(l.ofSource, c.source)
	}
}

// Authenticator finds out by inner who sends a request, and ends the probation of the request's connection when somebody
// with a name does.
func (l *Listener) Authenticator(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (resp *authenticator.Response, ok bool, err error) {
		c := l.begin(r)
		if c == nil {
			return inner.AuthenticateRequest(r)
		}
		defer func() { l.end(c, ok && err == nil && resp.User.GetName() != user.Anonymous) }()
		return inner.AuthenticateRequest(r)
	})
}

// begin notes that a request has come, and returns its connection if that is on probation.
func (l *Listener) begin(r *http.Request) *conn {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.byEnds[ends{local.String(), r.RemoteAddr}]
	if c != nil {
		c.asking++
	}
	return c
}

// end notes who has sent a request: somebody who is known, or a stranger.
func (l *Listener) end(c *conn, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.asking--
	switch {
	case c.place == nil: // it was closed meanwhile, or another request of it was the first
	case known:
		l.drop(c)
	default:
		l.strangers.MoveToBack(c.place)
		c.wait(l.limits.Idle)
	}
}

// sourceOf is the address that a connection is counted for.
func sourceOf(remote net.Addr) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address at all: all of these are counted together
	}
	return prefix
}
