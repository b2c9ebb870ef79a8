// Package stream runs further processes in containers, attaches to containers, and forwards ports into sandboxes. The executor
// copies no data of theirs: a process gets the ends of pipes, or a pty.
//
// It guarantees that nothing outlives its call but what the caller's streams themselves block: after a process has ended, its
// output is drained for a bounded time, because a grandchild may keep the pipe open for ever; and a process whose client has gone
// is hung up, and killed when it goes on all the same.
package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/exec"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/stream/wire"
)

// hangUpGrace is what a process whose client has gone may take to end, from the hang-up on.
const hangUpGrace = 5 * time.Second

// Executor is what streams need of the executor's client.
type Executor interface {
	Exec(ctx context.Context, req protocol.ExecRequest, files ...*os.File) (protocol.ExecResponse, error)
	Attach(ctx context.Context, req protocol.AttachRequest, files ...*os.File) error
	// Hold is Attach that returns when the files are attached; see the client's.
	Hold(ctx context.Context, req protocol.AttachRequest, files ...*os.File) (wait func() error, err error)
	Resize(ctx context.Context, req protocol.ResizeRequest) error
	Kill(ctx context.Context, req protocol.KillRequest) error
}

// Containers tells what a further process in a container is to be, and what an attached client may use of one.
type Containers interface {
	Process(id ids.ContainerID, command []string, terminal bool) (*specs.Process, error)
	// Attachable fails when the container does not run, or has no terminal that is asked for. An attachment that outlasts its client's stdin goes on when that ends.
	Attachable(id ids.ContainerID, terminal bool) (stdin, outlasts bool, err error)
	// Ends says of a container whose output has ended whether it ends as well, or goes on without. It may take a moment.
	Ends(ctx context.Context, id ids.ContainerID) bool
}

// Sandboxes tells where the ports of a sandbox are.
type Sandboxes interface {
	// NetworkNamespace is the path of a ready sandbox's network namespace, empty for the node's.
	NetworkNamespace(id ids.SandboxID) (string, error)
}

// Runner implements wire.Backend, and runs commands to their end.
type Runner struct {
	Executor   Executor
	Containers Containers
	Sandboxes  Sandboxes
	Log        *slog.Logger

	bounds bounds
	places atomic.Int64 // that are held
}

// Room is errdefs.ErrResourceExhausted when a container has as many commands under way as it may.
func (r *Runner) Room(container ids.ContainerID) error {
	r.bounds.mu.Lock()
	defer r.bounds.mu.Unlock()
	return r.bounds.room(container)
}

var _ wire.Backend = (*Runner)(nil)

// Exec runs a command with the client's streams and returns when it has ended: nil for code 0, an exec.CodeExitError for
// another code.
func (r *Runner) Exec(ctx context.Context, req *cri.ExecRequest, client wire.Streams) error {
	id := ids.ContainerID(req.GetContainerId())
	end, err := r.bounds.begin(id)
	if err != nil {
		return err
	}
	defer end()
	process, err := r.Containers.Process(id, req.GetCmd(), req.GetTty())
	if err != nil {
		return err
	}
	x := protocol.ExecRequest{ID: id, ExecID: ids.ExecID(randomid.New()), Process: process}
	var exit protocol.Exit
	if req.GetTty() {
		exit, err = r.execTerminal(ctx, x, client)
	} else {
		exit, err = r.execPipes(ctx, x, client)
	}
	switch {
	case err != nil:
		return fmt.Errorf("command %q: %w", req.GetCmd(), err)
	case exit.Code != 0:
		return exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", exit.Code), Code: exit.Code}
	}
	return nil
}

// execPipes runs a process on pipes. A nil stream is /dev/null to the process.
func (r *Runner) execPipes(ctx context.Context, req protocol.ExecRequest, client wire.Streams) (protocol.Exit, error) {
	p := &pipes{}
	defer p.close()
	req.Stdin, req.Stdout, req.Stderr = client.Stdin != nil, client.Stdout != nil, client.Stderr != nil
	for _, err := range []error{p.input(client.Stdin), p.output(client.Stdout), p.output(client.Stderr)} {
		if err != nil {
			return protocol.Exit{}, err
		}
	}
	exit, err := r.execute(ctx, req, p.close, p.theirs...)
	if ctx.Err() != nil {
		p.close() // nobody wants the rest
	}
	p.drain()
	return exit, err
}

// execute runs the process. When ctx ends it is hung up, so that it can end in its own way, and killed after the grace; at once
// when this server ends, or when its time is over.
func (r *Runner) execute(ctx context.Context, req protocol.ExecRequest, hangUp func(), files ...*os.File) (protocol.Exit, error) {
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		hangUp()
		if cause := context.Cause(ctx); !errors.Is(cause, wire.ErrClientGone) && !errors.Is(cause, wire.ErrIdle) {
			kill()
			return
		}
		// The executor holds the terminal too, so closing ours does not hang it up.
		if err := r.Executor.Kill(life, protocol.KillRequest{ID: req.ID, ExecID: req.ExecID, Signal: int(unix.SIGHUP), All: true}); err != nil && life.Err() == nil {
			r.Log.Debug("hang up a command", "container", req.ID, "error", err)
		}
		grace := time.NewTimer(hangUpGrace)
		defer grace.Stop()
		select {
		case <-grace.C:
			kill()
		case <-ended:
		}
	})
	defer stop()
	defer close(ended)
	resp, err := r.Executor.Exec(life, req, files...)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return resp.Exit, err
}

// pipes are the two ends of a process's streams: theirs go to the process, ours are copied to and from the client.
type pipes struct {
	theirs []*os.File
	ours   []*os.File
	copies sync.WaitGroup // of output
	gone   func()         // called when a client's output stream fails; may be nil
}

// input copies the client's stream into a pipe. The end of the client's stream closes the process's stdin.
func (p *pipes) input(in io.Reader) error {
	if in == nil {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	p.theirs, p.ours = append(p.theirs, r), append(p.ours, w)
	// It may wait for the client until the session ends.
	go func() {
		_, _ = io.Copy(w, in)
		w.Close()
		discard(in) // what the process does not want must not hold up the client
	}()
	return nil
}

func discard(in io.Reader) { _, _ = io.Copy(io.Discard, in) }

// output copies a pipe to the client's stream.
func (p *pipes) output(out io.Writer) error {
	if out == nil {
		return nil
	}
	r, err := p.outputPipe()
	if err != nil {
		return err
	}
	p.copy(out, r)
	return nil
}

// outputPipe makes a pipe for output that nobody copies yet.
func (p *pipes) outputPipe() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.theirs, p.ours = append(p.theirs, w), append(p.ours, r)
	return r, nil
}

func (p *pipes) copy(out io.Writer, r *os.File) {
	p.copies.Go(func() {
		if err := copyOutput(out, r); err != nil {
			// The client has gone. A process that prints on gets SIGPIPE, instead of waiting for ever for a reader.
			r.Close()
			if p.gone != nil {
				p.gone()
			}
		}
	})
}

// drain lets the copies of output come to their end after the process's.
func (p *pipes) drain() {
	for _, f := range p.theirs {
		f.Close()
	}
	for _, f := range p.ours {
		drainSoon(f) // the write end of stdin is not read
	}
	p.copies.Wait()
}

func (p *pipes) close() {
	for _, f := range append(p.theirs, p.ours...) {
		f.Close()
	}
}
