package wire

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchInterval is how often an open session is looked at: has its client gone, is it idle.
	watchInterval = 5 * time.Second
	// farewell bounds how long a client that has been told the end may take to hang up.
	farewell = 2 * time.Second
	// lastWords bounds how long a client may take to receive how it ended.
	lastWords = 10 * time.Second
)

// Causes of a session's end.
var (
	// ErrClientGone says that the client has hung up.
	ErrClientGone = errors.New("the client has gone")
	// ErrIdle says that nothing was streamed for the configured time.
	ErrIdle = errors.New("the stream was idle for too long")
	// ErrServerEnds says that this server ends.
	ErrServerEnds = errors.New("the streaming server ends")

	errDone = errors.New("the session is over")
)

// session is one client's connection. It is the ResponseWriter of its request too, so that whoever takes the connection
// over gets one that tells of its end.
type session struct {
	http.ResponseWriter
	req  *http.Request
	log  *slog.Logger
	idle time.Duration // 0: for ever
	look time.Duration // how often it is looked after

	forwards *atomic.Int64 // of all sessions

	ctx  context.Context // ends with the client
	end  context.CancelCauseFunc
	used atomic.Int64 // when something was streamed last, in nanoseconds
	conn *conn        // nil until the connection is taken over
	ping atomic.Pointer[func()]
	work sync.WaitGroup
}

// run serves the session to its end, and leaves nothing.
func (s *session) run(serve func(*session)) {
	s.touch()
	serve(s)
	s.end(errDone)
	if s.conn != nil {
		s.conn.Close()
	}
	s.work.Wait()
}

// Hijack implements http.Hijacker.
func (s *session) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		raw.Close()
		return nil, nil, errors.ErrUnsupported
	}
	s.conn = &conn{Conn: tcp, tcp: tcp, session: s, in: buffered.Reader}
	s.work.Go(s.watch)
	return s.conn, bufio.NewReadWriter(bufio.NewReader(s.conn), bufio.NewWriter(s.conn)), nil
}

func (s *session) touch() { s.used.Store(time.Now().UnixNano()) }

// watch ends the session of a client that has gone while nobody reads from it or writes to it, and one that is idle.
func (s *session) watch() {
	tick := time.NewTicker(s.look)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			// Whoever waits in a read or a write of the connection must end too.
			s.conn.Close()
			return
		case now := <-tick.C:
			switch {
			case s.conn.hungUp():
				s.end(ErrClientGone)
			case s.conn.unread():
				// The client's hanging up cannot reach this host while its data is in the way, but sending it something
				// tells: its host answers with a reset.
				if ping := s.ping.Load(); ping != nil {
					(*ping)()
				}
			}
			if s.idle > 0 && now.UnixNano()-s.used.Load() > int64(s.idle) {
				s.end(ErrIdle)
			}
		}
	}
}

// goodbye waits for the client to hang up, now that it has been told the end: closing first could take from it what it
// has not received yet.
func (s *session) goodbye(also <-chan struct{}) {
	select {
	case <-s.ctx.Done():
	case <-also:
	case <-time.After(farewell):
	}
}

// conn is a client's connection after the upgrade.
type conn struct {
	net.Conn // tcp, without its other methods, which would pass by Read and Write
	tcp      *net.TCPConn
	session  *session
	in       *bufio.Reader // may hold what the HTTP server has read ahead
	closing  sync.Once
	closed   atomic.Bool
}

func (c *conn) Read(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, io.EOF
	}
	n, err := c.in.Read(p)
	if err != nil {
		c.session.end(ErrClientGone)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.tcp.Write(p)
	if err != nil {
		c.session.end(ErrClientGone)
	}
	return n, err
}

// Close ends the connection. What the client sends meanwhile is taken and thrown away: closing a TCP connection with data
// unread resets it, and a reset takes from the client what it has not read yet.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.closed.Store(true)
		c.session.end(errDone)
		deadline := time.Now().Add(farewell)
		if c.tcp.CloseWrite() != nil || c.tcp.SetDeadline(deadline) != nil {
			c.tcp.Close()
			return
		}
		c.session.work.Go(func() {
			defer c.tcp.Close()
			_, _ = io.Copy(io.Discard, c.tcp)
		})
	})
	return nil
}

// hungUp says that the client has closed its side, which cannot be told from reads when there is data before the end.
func (c *conn) hungUp() bool {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return true
	}
	var up bool
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		up = err == nil && n == 1 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return up || err != nil
}

// unread says that there is data from the client that nobody takes at this moment.
func (c *conn) unread() bool {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n > 0
}

// touching notes that a stream is in use.
type touching struct {
	session *session
	io.Reader
	io.Writer
}

func (t touching) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.session.touch()
	return n, err
}

func (t touching) Write(p []byte) (int, error) {
	t.session.touch()
	return t.Writer.Write(p)
}
