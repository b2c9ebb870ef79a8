package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/stream/wire"
)

const (
	// placeLife is how long a place is held for a client that was given its URL. The URL is good for longer; who comes later is attached when he comes.
	placeLife = 10 * time.Second
	// maxPlaces bounds the places that are held at a time: each has four descriptors, and the executor keeps what it is given of output, within its own bound.
	maxPlaces = 64
)

// Place is an attachment whose client is on its way. What the container prints from Hold on waits for the client, also when the container has ended by then: a
// program may print and end in the milliseconds that a client takes to use the URL that it was given.
type Place struct {
	r       *Runner
	req     *cri.AttachRequest
	name    string
	hasIn   bool
	lasts   bool // when the client's stdin has ended
	p       *pipes
	outputs []*os.File         // of stdout and stderr, as the request has them
	over    chan error         // how the executor's call has ended; buffered
	cancel  context.CancelFunc // ends the executor's call
	expiry  *time.Timer

	mu    sync.Mutex
	taken bool // by the client, or given up
}

// Hold takes a place for the client of an attachment. The error is errdefs.ErrFailedPrecondition when the container has ended: all that it has printed is in its log.
func (r *Runner) Hold(ctx context.Context, attach *cri.AttachRequest) (*Place, error) {
	id := ids.ContainerID(attach.GetContainerId())
	hasIn, lasts, err := r.Containers.Attachable(id, attach.GetTty())
	if err != nil {
		return nil, err
	}
	pl := &Place{r: r, req: attach, name: randomid.New(), hasIn: hasIn, lasts: lasts, p: &pipes{}, over: make(chan error, 1), taken: true}
	if r.places.Add(1) > maxPlaces {
		r.places.Add(-1)
		return pl, nil // its client is attached when he comes
	}
	held := false
	defer func() {
		if !held {
			r.places.Add(-1)
		}
	}()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	pl.cancel = cancel
	for _, wanted := range []bool{attach.GetStdout(), attach.GetStderr()} {
		if !wanted {
			continue
		}
		out, err := pl.p.outputPipe()
		if err != nil {
			pl.end()
			return nil, err
		}
		pl.outputs = append(pl.outputs, out)
	}
	req := protocol.AttachRequest{ID: id, Name: pl.name, Stdout: attach.GetStdout(), Stderr: attach.GetStderr()}
	wait, err := r.Executor.Hold(life, req, pl.p.theirs...)
	switch {
	case err == nil && stop():
		held = true
		go func() { pl.over <- wait() }()
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.taken = false
		pl.expiry = time.AfterFunc(placeLife, pl.Drop)
		return pl, nil
	case err == nil: // the caller has gone
		pl.end()
		return nil, ctx.Err()
	}
	pl.end()
	switch {
	case errdefs.IsNotImplemented(err):
		return pl, nil
	case !errdefs.IsFailedPrecondition(err):
		return nil, fmt.Errorf("attach: %w", err)
	case r.Containers.Ends(ctx, id): // and this is why there is no more output
		_, _, err := r.Containers.Attachable(id, attach.GetTty())
		return nil, err
	}
	return pl, nil // it has closed its output, and goes on
}

// take says whether the place is held, and from then on it is the caller's.
func (pl *Place) take() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.taken {
		return false
	}
	pl.taken = true
	pl.expiry.Stop()
	pl.r.places.Add(-1)
	return true
}

// Drop gives the place up, if nobody has taken it.
func (pl *Place) Drop() {
	if pl.take() {
		pl.end()
	}
}

func (pl *Place) end() {
	pl.cancel()
	pl.p.close()
}

// lost says that a place is none any more: the container prints more than can be kept for a client who is not there, or the executor's worker has been replaced.
func (pl *Place) lost() bool {
	select {
	case err := <-pl.over:
		pl.over <- err
		return err != nil
	default:
		return false
	}
}

// Serve copies the container's stdio to and from the client's streams, until the container or the client ends.
func (pl *Place) Serve(ctx context.Context, client wire.Streams) error {
	if !pl.take() {
		return pl.r.attach(ctx, pl.req, client)
	}
	defer pl.end()
	if pl.lost() {
		return pl.r.attach(ctx, pl.req, client)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, pl.cancel)()
	id := ids.ContainerID(pl.req.GetContainerId())
	go pl.r.forwardSizes(ctx, id, client.Sizes, func(size wire.Size) error {
		return pl.r.Executor.Resize(ctx, protocol.ResizeRequest{ID: id, Width: size.Width, Height: size.Height})
	})
	pl.p.gone = cancel
	outputs := pl.outputs
	for _, out := range []io.Writer{client.Stdout, client.Stderr} {
		if out != nil {
			pl.p.copy(out, outputs[0])
			outputs = outputs[1:]
		}
	}
	in := &pipes{}
	defer in.close()
	if client.Stdin != nil && pl.hasIn {
		if pl.lasts {
			client.Stdin = &lasting{client.Stdin, ctx.Done()}
		}
		if err := in.input(client.Stdin); err != nil {
			return err
		}
		fed := make(chan struct{})
		defer func() { cancel(); <-fed }()
		go func() {
			defer close(fed)
			err := pl.r.Executor.Attach(ctx, protocol.AttachRequest{ID: id, To: pl.name, Stdin: true}, in.theirs...)
			in.close() // what the client sends on is thrown away
			if err != nil && ctx.Err() == nil && !errdefs.IsNotFound(err) {
				pl.r.Log.Debug("the input of an attached client has ended", "container", id, "error", err)
			}
		}()
	} else if client.Stdin != nil {
		go discard(client.Stdin)
	}
	return over(ctx, pl.p, <-pl.over)
}

// over is how an attachment ends whose call has.
func over(ctx context.Context, p *pipes, err error) error {
	if ctx.Err() != nil {
		p.close()
		p.drain()
		return nil // the client has gone: that is how most attachments end
	}
	p.drain()
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return nil
}

// attach is Serve for a client for whom no place is held.
func (r *Runner) attach(ctx context.Context, attach *cri.AttachRequest, client wire.Streams) error {
	id := ids.ContainerID(attach.GetContainerId())
	hasStdin, lasts, err := r.Containers.Attachable(id, attach.GetTty())
	if errors.Is(err, errdefs.ErrFailedPrecondition) {
		return nil // it ran when the client asked to be attached, and has ended since: there is nothing more to come
	}
	if err != nil {
		return err
	}
	if !hasStdin && client.Stdin != nil {
		go discard(client.Stdin)
		client.Stdin = nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if lasts && client.Stdin != nil {
		client.Stdin = &lasting{client.Stdin, ctx.Done()}
	}
	go r.forwardSizes(ctx, id, client.Sizes, func(size wire.Size) error {
		return r.Executor.Resize(ctx, protocol.ResizeRequest{ID: id, Width: size.Width, Height: size.Height})
	})
	p := &pipes{gone: cancel}
	defer p.close()
	req := protocol.AttachRequest{ID: id, Stdin: client.Stdin != nil, Stdout: client.Stdout != nil, Stderr: client.Stderr != nil}
	for _, err := range []error{p.input(client.Stdin), p.output(client.Stdout), p.output(client.Stderr)} {
		if err != nil {
			return err
		}
	}
	err = r.Executor.Attach(ctx, req, p.theirs...)
	return over(ctx, p, err)
}

// lasting is an input that ends with the attachment, and not before.
type lasting struct {
	in   io.Reader
	over <-chan struct{}
}

func (l *lasting) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	if n == 0 && err != nil {
		<-l.over
	}
	return n, err
}
