package wire

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/moby/spdystream"
	"github.com/moby/spdystream/spdy"
	"k8s.io/streaming/pkg/httpstream"
	httpspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

// Limits of what a client may send to open streams.
const (
	maxControlFrame = 64 << 10 // bytes
	maxHeaderField  = 8 << 10  // bytes
	maxHeaders      = 64
)

// spdyConn is a SPDY connection, of which every stream is known here: spdystream lets a stream's reader and its own workers wait
// for each other for ever when a connection ends, unless each stream is reset.
type spdyConn struct {
	*spdystream.Connection
	session *session
	net     net.Conn
	served  chan struct{} // closed when the connection is read no more

	mu      sync.Mutex
	streams map[uint32]*spdystream.Stream
	closed  bool
}

// upgradeSPDY takes the connection over, after the client and this server have agreed on one of the protocols.
func (s *session) upgradeSPDY(protocols []string) (protocol string, err error) {
	h := s.req.Header
	if !httpstream.IsUpgradeRequest(s.req) || !strings.Contains(strings.ToLower(h.Get(httpstream.HeaderUpgrade)), strings.ToLower(httpspdy.HeaderSpdy31)) {
		return "", s.refuse(http.StatusBadRequest, "the request asks neither for %s nor for WebSocket", httpspdy.HeaderSpdy31)
	}
	if protocol, err = httpstream.Handshake(s.req, s.ResponseWriter, protocols); err != nil {
		return "", err // it has answered
	}
	out := s.Header()
	out.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	out.Set(httpstream.HeaderUpgrade, httpspdy.HeaderSpdy31)
	s.WriteHeader(http.StatusSwitchingProtocols)
	_, _, err = s.Hijack()
	return protocol, err
}

// serveSPDY speaks SPDY on a connection. accept is told of each new stream, and returns what to do with it once the client has
// been told that it is there; nil refuses it. Neither may wait.
func (s *session) serveSPDY(conn net.Conn, accept func(*spdystream.Stream) (opened func())) (*spdyConn, error) {
	inner, err := spdystream.NewConnectionWithOptions(&splitter{Conn: conn}, true, spdy.WithMaxControlFramePayloadSize(maxControlFrame),
		spdy.WithMaxHeaderFieldSize(maxHeaderField), spdy.WithMaxHeaderCount(maxHeaders))
	if err != nil {
		return nil, err
	}
	c := &spdyConn{Connection: inner, session: s, net: conn, served: make(chan struct{}), streams: map[uint32]*spdystream.Stream{}}
	var pinging atomic.Bool
	ping := func() {
		if pinging.CompareAndSwap(false, true) {
			s.work.Go(func() { // it waits for the answer, or the end
				defer pinging.Store(false)
				_, _ = inner.Ping()
			})
		}
	}
	s.ping.Store(&ping)
	go func() {
		defer close(c.served)
		inner.Serve(func(stream *spdystream.Stream) {
			c.mu.Lock()
			var opened func()
			if !c.closed {
				if opened = accept(stream); opened != nil {
					c.streams[stream.Identifier()] = stream
				}
			}
			c.mu.Unlock()
			// A write to a stream waits for its reply. So nobody gets one whose reply could not be sent.
			if opened == nil || stream.SendReply(http.Header{}, false) != nil {
				c.discard(stream)
				return
			}
			opened()
		})
	}()
	return c, nil
}

// discard ends a stream in both directions. One that was closed by both sides is told no more of it.
func (c *spdyConn) discard(stream *spdystream.Stream) {
	c.mu.Lock()
	delete(c.streams, stream.Identifier())
	c.mu.Unlock()
	_ = stream.Reset() // the connection may have ended
}

// wasReset says, after a stream's reads have ended, that the client wants no more of it, rather than that it has no more to
// send: spdystream forgets streams that are reset, and tells readers of both in the same way.
func (c *spdyConn) wasReset(stream *spdystream.Stream) bool {
	return c.FindStream(stream.Identifier()) == nil
}

// end ends the connection and all that waits for it.
func (c *spdyConn) end() {
	c.net.Close()
	c.mu.Lock()
	c.closed = true
	open := make([]*spdystream.Stream, 0, len(c.streams))
	for _, stream := range c.streams {
		open = append(open, stream)
	}
	c.mu.Unlock()
	for _, stream := range open {
		c.discard(stream)
	}
	<-c.served
}

// errReset is what reading a stream ends with that the client has reset.
var errReset = errors.New("the client has reset the stream")

// pickProtocol is the first of the client's that is served.
func pickProtocol(offered []string, served ...string) (string, bool) {
	for _, p := range offered {
		if slices.Contains(served, p) {
			return p, true
		}
	}
	return "", false
}
