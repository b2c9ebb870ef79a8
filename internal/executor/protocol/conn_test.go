package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns two connections that speak to each other; serve is the second one's.
func pair(t *testing.T, serve func(context.Context, *Call) (any, error)) (*Conn, *Conn) {
	t.Helper()
	a, b := sockets(t)
	ctx, cancel := context.WithCancel(t.Context())
	ca := NewConn(ctx, a, ConnConfig{})
	cb := NewConn(ctx, b, ConnConfig{Serve: serve})
	t.Cleanup(func() { cancel(); ca.Close(); cb.Close() })
	return ca, cb
}

func TestCallsAreMultiplexed(t *testing.T) {
	release := make(chan struct{})
	c, _ := pair(t, func(_ context.Context, call *Call) (any, error) {
		var n int
		if err := call.Decode(&n); err != nil {
			return nil, err
		}
		if n == 0 {
			<-release // the first call is answered last
		}
		return n * 2, nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		var got int
		if err := c.Call(t.Context(), Outgoing{Method: "Double", Body: 0}, &got); err != nil {
			t.Error(err)
		}
	})
	for i := 1; i < 50; i++ {
		var got int
		if err := c.Call(t.Context(), Outgoing{Method: "Double", Body: i}, &got); err != nil || got != 2*i {
			t.Fatalf("call %d: %d %v", i, got, err)
		}
	}
	close(release)
	wg.Wait()
}

// However many calls last as long as they like, others are served.
func TestShortCallsAreNeverRefused(t *testing.T) {
	a, b := sockets(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := NewConn(ctx, a, ConnConfig{})
	defer c.Close()
	var serving sync.WaitGroup
	serving.Add(maxLong)
	server := NewConn(ctx, b, ConnConfig{Long: func(method string) bool { return method == "Long" }, Serve: func(ctx context.Context, call *Call) (any, error) {
		if call.Method == "Long" {
			serving.Done()
			<-ctx.Done()
		}
		return "served", nil
	}})
	defer server.Close()
	long, end := context.WithCancel(ctx)
	var calls sync.WaitGroup
	for range maxLong {
		calls.Go(func() { c.Call(long, Outgoing{Method: "Long"}, nil) })
	}
	serving.Wait()
	if err := c.Call(ctx, Outgoing{Method: "Long"}, nil); !errdefs.IsResourceExhausted(err) {
		t.Errorf("one more long call: %v, want ResourceExhausted", err)
	}
	for range 100 {
		var got string
		if err := c.Call(ctx, Outgoing{Method: "Short"}, &got); err != nil || got != "served" {
			t.Fatalf("a short call: %q, %v", got, err)
		}
	}
	end()
	calls.Wait()
	serving.Add(1)
	again, stop := context.WithCancel(ctx)
	calls.Go(func() {
		for again.Err() == nil {
			if err := c.Call(again, Outgoing{Method: "Long"}, nil); !errdefs.IsResourceExhausted(err) {
				return // the places are given back a moment after the calls are taken back
			}
		}
	})
	serving.Wait()
	stop()
	calls.Wait()
}

func TestNotesAndDescriptors(t *testing.T) {
	c, _ := pair(t, func(_ context.Context, call *Call) (any, error) {
		if len(call.FDs) != 1 {
			return nil, fmt.Errorf("%w: %d descriptors", errdefs.ErrInvalidArgument, len(call.FDs))
		}
		for i := range 3 {
			if err := call.Note(i, call.FDs[0]); err != nil {
				return nil, err
			}
		}
		return "done", nil
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd, err := DupFile(w)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	var notes []string
	var reply string
	err = c.Call(t.Context(), Outgoing{Method: "X", FDs: []FD{fd}, OnNote: func(body json.RawMessage, fds []FD) {
		f := fds[0].File("pipe")
		fmt.Fprintf(f, "%s;", body)
		f.Close()
		notes = append(notes, string(body))
	}}, &reply)
	fd.Close()
	if err != nil || reply != "done" || strings.Join(notes, "") != "012" {
		t.Errorf("%v, reply %q, notes %q", err, reply, notes)
	}
	// All duplicates are closed, on both sides: the pipe ends.
	if got, err := io.ReadAll(r); string(got) != "0;1;2;" || err != nil {
		t.Errorf("pipe: %q %v", got, err)
	}
}

func TestCancel(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	c, _ := pair(t, func(ctx context.Context, _ *Call) (any, error) {
		close(began)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if err := c.Call(ctx, Outgoing{Method: "X"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want Canceled", err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the other side was not told")
	}
}

func TestConnectionEnds(t *testing.T) {
	ended := make(chan struct{})
	var server *Conn
	ready := make(chan struct{})
	c, server := pair(t, func(ctx context.Context, _ *Call) (any, error) {
		<-ready
		server.Close()
		<-ctx.Done()
		close(ended)
		return nil, nil
	})
	close(ready)
	if err := c.Call(t.Context(), Outgoing{Method: "X"}, nil); !errdefs.IsUnavailable(err) || !IsLost(err) {
		t.Errorf("error %v, want Unavailable, lost", err)
	}
	<-ended
	if err := c.Call(t.Context(), Outgoing{Method: "X"}, nil); !IsLost(err) {
		t.Errorf("call on a connection that has ended: %v", err)
	}
}

func TestErrorClasses(t *testing.T) {
	fails := make(chan error, 1)
	c, _ := pair(t, func(context.Context, *Call) (any, error) { return nil, <-fails })
	for _, class := range classes {
		fail := fmt.Errorf("container %q: %w", "x", class.err)
		fails <- fail
		err := c.Call(t.Context(), Outgoing{Method: "X"}, nil)
		if !errors.Is(err, class.err) || err.Error() != fail.Error() || IsLost(err) {
			t.Errorf("%s: %v", class.name, err)
		}
	}
	fails <- errors.New("whatever")
	if err := c.Call(t.Context(), Outgoing{Method: "X"}, nil); !errdefs.IsUnknown(err) || err.Error() != "whatever" {
		t.Errorf("%v, want Unknown", err)
	}
}

func TestTooLarge(t *testing.T) {
	huge := strings.Repeat("x", MaxPayload)
	c, _ := pair(t, func(context.Context, *Call) (any, error) { return huge, nil })
	if err := c.Call(t.Context(), Outgoing{Method: "X", Body: huge}, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("request: %v, want InvalidArgument", err)
	}
	if err := c.Call(t.Context(), Outgoing{Method: "X"}, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("reply: %v, want InvalidArgument", err)
	}
}
