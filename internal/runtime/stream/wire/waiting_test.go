package wire

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
)

// address is where a server listens.
func address(t *testing.T, s *Server) netip.AddrPort {
	t.Helper()
	u, err := url.Parse(execURL(t, s, false))
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(u.Host)
}

// isClosed says whether the server has closed a connection on which nothing was sent; it waits for that as long as closing is due.
func isClosed(t *testing.T, c net.Conn, due bool) bool {
	t.Helper()
	wait := time.Millisecond
	if due {
		wait = time.Minute
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// waits waits until so many connections are counted.
func waits(t *testing.T, s *Server, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.waiting.count() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are said to wait, want %d", s.waiting.count(), n)
		}
	}
}

// TestTooManyWaiting: connections without a token are bounded, and those that have shown theirs do not count.
func TestTooManyWaiting(t *testing.T) {
	s := serve(t, &backend{exec: shout}, 0)
	to := address(t, s)
	var open []net.Conn
	for range maxWaiting {
		open = append(open, harness.DialAs(t, 0, to))
	}
	if !isClosed(t, harness.DialAs(t, 0, to), true) {
		t.Error("one connection too many was served")
	}
	for _, c := range open {
		c.Close()
	}
	waits(t, s, 0)
	ws := dialWebSocket(t, execURL(t, s, false), "v5.channel.k8s.io")
	waits(t, s, 0)
	ws.Close()
}

// TestUsersLeaveRoomForRoot: a user of the host who opens all connections that he can keeps nobody else out.
func TestUsersLeaveRoomForRoot(t *testing.T) {
	s := serve(t, &backend{exec: shout}, 0)
	to := address(t, s)
	hostile := func(uid int) (open, closed []net.Conn) {
		for i := range maxWaiting + 1 {
			c := harness.DialAs(t, uid, to)
			if i < maxWaitingOfUser {
				open = append(open, c)
			} else {
				closed = append(closed, c)
			}
		}
		return open, closed
	}
	open, closed := hostile(65534)
	for i, c := range closed {
		if !isClosed(t, c, true) {
			t.Fatalf("connection %d of a user was taken", maxWaitingOfUser+i)
		}
	}
	waits(t, s, maxWaitingOfUser)
	for i, c := range open {
		if isClosed(t, c, false) {
			t.Fatalf("connection %d of a user was not taken", i)
		}
	}
	if isClosed(t, harness.DialAs(t, 1000, to), false) {
		t.Error("another user is kept out")
	}
	waits(t, s, maxWaitingOfUser+1)
	// And all the users that he can be by his subordinate ones.
	for uid := 100000; uid < 100000+maxWaitingOfOthers; uid++ {
		harness.DialAs(t, uid, to)
	}
	waits(t, s, maxWaitingOfOthers)
	if !isClosed(t, harness.DialAs(t, 1001, to), true) {
		t.Error("users have more places than there are for them")
	}
	for range maxWaiting - maxWaitingOfOthers - 1 {
		if isClosed(t, harness.DialAs(t, 0, to), false) {
			t.Fatal("root is kept out")
		}
	}
	ws := dialWebSocket(t, execURL(t, s, false), "v5.channel.k8s.io")
	ws.Close()
	for _, c := range open {
		c.Close()
	}
	waits(t, s, maxWaiting-1-maxWaitingOfUser)
	if isClosed(t, harness.DialAs(t, 65534, to), false) {
		t.Error("a user who has closed his connections is kept out")
	}
}

// TestUnknownOwners: on a kernel that does not say whose a connection is the bound of all users holds.
func TestUnknownOwners(t *testing.T) {
	var w waiting
	conns := make([]net.Conn, maxWaitingOfOthers+1)
	for i := range conns {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		conns[i] = a
		if taken := w.take(a, client{}); taken != (i < maxWaitingOfOthers) {
			t.Errorf("connection %d: taken %t", i, taken)
		}
	}
	for range 2 { // a connection may be told to be closed twice
		for _, c := range conns {
			w.leave(c)
		}
	}
	if w.others != 0 || w.count() != 0 || len(w.users) != 0 {
		t.Errorf("%d of users and %d in all are left, of %v", w.others, w.count(), w.users)
	}
}
