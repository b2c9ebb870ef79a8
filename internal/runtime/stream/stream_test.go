package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFit(t *testing.T) {
	for _, c := range []struct{ a, b, most, wantA, wantB int }{
		{0, 0, 10, 0, 0}, {4, 6, 10, 4, 6}, {20, 0, 10, 10, 0}, {0, 20, 10, 0, 10}, {20, 20, 10, 5, 5},
		{20, 3, 10, 7, 3}, {3, 20, 10, 3, 7}, {5, 20, 10, 5, 5}, {20, 20, 11, 6, 5}, {6, 6, 10, 5, 5},
	} {
		a, b := fit(make([]byte, c.a), make([]byte, c.b), c.most)
		if len(a) != c.wantA || len(b) != c.wantB {
			t.Errorf("%d and %d within %d: %d and %d, want %d and %d", c.a, c.b, c.most, len(a), len(b), c.wantA, c.wantB)
		}
	}
}

// slow is a client that takes its time.
type slow struct {
	bytes.Buffer
	pause time.Duration
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(s.pause) //nolint:forbidigo // a slow reader is what it plays
	return s.Buffer.Write(p)
}

// TestDrain: when the process has ended and somebody else has the pipe open, what is in the pipe is delivered, to a slow client too,
// and nothing is waited for.
func TestDrain(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	const size = 60 << 10 // of the 64 KiB that a pipe holds
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	client := &slow{pause: drainBound}
	drainSoon(r)
	begin := time.Now()
	if err := copyOutput(client, r); err != nil || client.Len() != size {
		t.Errorf("%d bytes of %d, %v", client.Len(), size, err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	// One that prints for ever is cut.
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				_ = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = w.Write(make([]byte, 4<<10))
			}
		}
	}()
	drainSoon(r)
	if err := copyOutput(io.Discard, r); err != nil {
		t.Error(err)
	}
	close(stop)
	<-ended
}

func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	c, err := dialLoopback(t.Context(), "", addr.Port())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.RemoteAddr().String(); got != addr.String() {
		t.Errorf("connected to %s", got)
	}
	c.Close()
	l.Close()
	if _, err := dialLoopback(t.Context(), "", addr.Port()); !errors.Is(err, unix.ECONNREFUSED) || strings.Contains(err.Error(), "\n") {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := dialLoopback(t.Context(), "/no/such/namespace", addr.Port()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such namespace: %v", err)
	}
	// A port whose queue is full does not answer: the caller's end ends the wait.
	full, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full)
	if err := errors.Join(unix.Bind(full, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(full, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(full)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for err == nil {
		var c *net.TCPConn
		if c, err = dialIn(ctx, "", netip.AddrPortFrom(addr.Addr(), uint16(name.(*unix.SockaddrInet4).Port))); err == nil {
			defer c.Close()
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody answers: %v", err)
	}
}
