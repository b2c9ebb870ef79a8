package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/stream/wire"
)

// outputs is an executor whose container has said something by the time at which somebody is attached.
type outputs struct {
	printers
	said  string
	hold  error      // what Hold says
	end   chan error // how the call of a held place ends; closed: well
	late  atomic.Int64
	stdin chan string // what a held client has typed
	gone  chan struct{}
}

func (o *outputs) Hold(ctx context.Context, req protocol.AttachRequest, files ...*os.File) (func() error, error) {
	if o.hold != nil {
		return nil, o.hold
	}
	if req.Stdin || req.Name == "" {
		return nil, errors.New("a stdin, or no name")
	}
	for _, f := range files {
		_, _ = io.WriteString(f, o.said)
	}
	return func() error {
		defer close(o.gone)
		select {
		case err := <-o.end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}

func (o *outputs) Attach(_ context.Context, req protocol.AttachRequest, files ...*os.File) error {
	if req.To == "" {
		o.late.Add(1)
		_, _ = io.WriteString(files[0], "late")
		return nil
	}
	typed, err := io.ReadAll(files[0])
	o.stdin <- string(typed)
	close(o.end)
	return err
}

// ending is a container that ends when its output does, or not.
type ending struct {
	anything
	ends, over, lasts bool
}

func (e *ending) Attachable(ids.ContainerID, bool) (bool, bool, error) {
	if e.over {
		return false, false, errdefs.ErrFailedPrecondition
	}
	return true, e.lasts, nil
}

func (e *ending) Ends(context.Context, ids.ContainerID) bool { e.over = e.ends; return e.ends }

func newOutputs(said string) (*Runner, *outputs, *ending) {
	o, e := &outputs{said: said, end: make(chan error, 1), stdin: make(chan string, 1), gone: make(chan struct{})}, &ending{}
	return &Runner{Executor: o, Containers: e, Log: slog.New(slog.DiscardHandler)}, o, e
}

// TestPlaces: what a container prints from Hold on waits for the client, and the client's stdin comes with him.
func TestPlaces(t *testing.T) {
	req := &cri.AttachRequest{ContainerId: "c", Stdin: true, Stdout: true, Stderr: true}
	t.Run("a client comes", func(t *testing.T) {
		r, o, _ := newOutputs("early")
		pl, err := r.Hold(t.Context(), req)
		if err != nil || r.places.Load() != 1 {
			t.Fatalf("%v, %d places", err, r.places.Load())
		}
		var out, errOut bytes.Buffer
		if err := pl.Serve(t.Context(), wire.Streams{Stdin: strings.NewReader("typed"), Stdout: &out, Stderr: &errOut}); err != nil || out.String() != "early" || errOut.String() != "early" {
			t.Errorf("%q, %q, %v", out.String(), errOut.String(), err)
		}
		if typed := <-o.stdin; typed != "typed" || r.places.Load() != 0 || o.late.Load() != 0 {
			t.Errorf("typed %q, %d places, %d late", typed, r.places.Load(), o.late.Load())
		}
		pl.Drop()
	})
	serve := func(t *testing.T, r *Runner, pl *Place, want string) {
		t.Helper()
		var out bytes.Buffer
		if err := pl.Serve(t.Context(), wire.Streams{Stdout: &out, Stderr: io.Discard}); err != nil || out.String() != want || r.places.Load() != 0 {
			t.Errorf("%q, %v, %d places; want %q", out.String(), err, r.places.Load(), want)
		}
	}
	t.Run("nobody comes in time", func(t *testing.T) {
		r, o, _ := newOutputs("early")
		pl, err := r.Hold(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pl.Drop()
		<-o.gone
		serve(t, r, pl, "late")
	})
	t.Run("the place is lost before the client comes", func(t *testing.T) {
		r, o, _ := newOutputs("early")
		pl, err := r.Hold(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		o.end <- errdefs.ErrResourceExhausted
		err = <-pl.over
		pl.over <- err
		serve(t, r, pl, "late")
	})
	t.Run("the caller has gone", func(t *testing.T) {
		r, o, _ := newOutputs("early")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if pl, err := r.Hold(ctx, req); !errors.Is(err, context.Canceled) || r.places.Load() != 0 {
			t.Errorf("%v, %v, %d places", pl, err, r.places.Load())
		}
		o.end <- nil
	})
	t.Run("an executor of before", func(t *testing.T) {
		r, o, _ := newOutputs("early")
		o.hold = errdefs.ErrNotImplemented
		pl, err := r.Hold(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, r, pl, "late")
	})
	t.Run("one too many", func(t *testing.T) {
		r, _, _ := newOutputs("early")
		r.places.Store(maxPlaces)
		pl, err := r.Hold(t.Context(), req)
		if err != nil || r.places.Load() != maxPlaces {
			t.Fatalf("%v, %d places", err, r.places.Load())
		}
		r.places.Store(0)
		serve(t, r, pl, "late")
	})
	t.Run("no more output", func(t *testing.T) {
		r, o, e := newOutputs("")
		o.hold = errdefs.ErrFailedPrecondition
		pl, err := r.Hold(t.Context(), req)
		if err != nil {
			t.Fatalf("of a program that goes on: %v", err)
		}
		serve(t, r, pl, "late")
		e.ends = true
		if _, err := r.Hold(t.Context(), req); !errdefs.IsFailedPrecondition(err) || r.places.Load() != 0 {
			t.Errorf("of one that ends: %v, %d places", err, r.places.Load())
		}
		o.hold = errdefs.ErrUnavailable
		e.ends, e.over = false, false
		if _, err := r.Hold(t.Context(), req); !errdefs.IsUnavailable(err) || r.places.Load() != 0 {
			t.Errorf("without an executor: %v, %d places", err, r.places.Load())
		}
	})
}
