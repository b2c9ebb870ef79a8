// Package stream runs further processes in containers and attaches to containers, with streams that the executor does not
// copy: the process gets the ends of pipes, or a pty.
//
// It guarantees that nothing outlives its call but what the caller's streams themselves block: after a process has ended, its
// output is drained for a bounded time, because a grandchild may keep the pipe open for ever.
package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/runtime/ident"
)

// drainBound is how long output is read on after the process has ended. What is in the pipe by then is read in microseconds; only
// what others write later is cut.
const drainBound = 500 * time.Millisecond

// Executor is what streams need of the executor's client.
type Executor interface {
	Exec(ctx context.Context, req protocol.ExecRequest, files ...*os.File) (protocol.ExecResponse, error)
	Attach(ctx context.Context, req protocol.AttachRequest, files ...*os.File) error
	Resize(ctx context.Context, req protocol.ResizeRequest) error
}

// Containers tells what a further process in a container is to be, and what an attached client may use of one.
type Containers interface {
	Process(id string, command []string, terminal bool) (*specs.Process, error)
	// Attachable fails when the container does not run, or has another idea of its terminal.
	Attachable(id string, terminal bool) (stdin bool, err error)
}

// Runner implements streaming.Runtime but for port-forward, and runs commands to their end.
type Runner struct {
	Executor   Executor
	Containers Containers
	Log        *slog.Logger
}

// Exec runs a command with the client's streams and returns when it has ended: nil for code 0, an exec.CodeExitError for
// another code.
func (r *Runner) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	process, err := r.Containers.Process(id, cmd, tty)
	if err != nil {
		return err
	}
	req := protocol.ExecRequest{ID: id, ExecID: ident.New(), Process: process}
	var exit protocol.Exit
	if tty {
		exit, err = r.execTerminal(ctx, req, in, out, resize)
	} else {
		exit, err = r.execPipes(ctx, req, in, out, errOut)
	}
	if err != nil {
		return err
	}
	if exit.Code != 0 {
		return exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", exit.Code), Code: exit.Code}
	}
	return nil
}

// execPipes runs a process on pipes. A nil stream is /dev/null to the process.
func (r *Runner) execPipes(ctx context.Context, req protocol.ExecRequest, in io.Reader, out, errOut io.Writer) (protocol.Exit, error) {
	p := &pipes{}
	defer p.close()
	req.Stdin, req.Stdout, req.Stderr = in != nil, out != nil, errOut != nil
	for _, err := range []error{p.input(in), p.output(out), p.output(errOut)} {
		if err != nil {
			return protocol.Exit{}, err
		}
	}
	resp, err := r.Executor.Exec(ctx, req, p.theirs...)
	p.drain()
	return resp.Exit, err
}

// Attach copies a running container's stdio to and from the client's streams, until the container or the client ends.
func (r *Runner) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	hasStdin, err := r.Containers.Attachable(id, tty)
	if err != nil {
		return err
	}
	if !hasStdin {
		in = nil
	}
	if tty {
		errOut = nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go r.forwardSizes(ctx, id, resize, func(size remotecommand.TerminalSize) error {
		return r.Executor.Resize(ctx, protocol.ResizeRequest{ID: id, Width: size.Width, Height: size.Height})
	})
	p := &pipes{gone: cancel}
	defer p.close()
	req := protocol.AttachRequest{ID: id, Stdin: in != nil, Stdout: out != nil, Stderr: errOut != nil}
	for _, err := range []error{p.input(in), p.output(out), p.output(errOut)} {
		if err != nil {
			return err
		}
	}
	err = r.Executor.Attach(ctx, req, p.theirs...)
	p.drain()
	if ctx.Err() != nil {
		return nil // the client has gone: that is how most attachments end
	}
	return err
}

// PortForward is not there yet.
func (r *Runner) PortForward(context.Context, string, int32, io.ReadWriteCloser) error {
	return errors.New("PortForward is not implemented yet")
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
	// The reader may block for ever in the client's stream; it is the streaming server that ends it.
	go func() {
		_, _ = io.Copy(w, in)
		w.Close()
	}()
	return nil
}

// output copies a pipe to the client's stream.
func (p *pipes) output(out io.Writer) error {
	if out == nil {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	p.theirs, p.ours = append(p.theirs, w), append(p.ours, r)
	p.copies.Go(func() {
		if _, err := io.Copy(out, r); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			// The client has gone. A process that prints on gets SIGPIPE, instead of waiting for ever for a reader.
			r.Close()
			if p.gone != nil {
				p.gone()
			}
		}
	})
	return nil
}

// drain lets the copies of output come to their end after the process's.
func (p *pipes) drain() {
	for _, f := range p.theirs {
		f.Close()
	}
	deadline := time.Now().Add(drainBound)
	for _, f := range p.ours {
		_ = f.SetReadDeadline(deadline) // not supported by the write end of stdin, which is not read
	}
	p.copies.Wait()
}

func (p *pipes) close() {
	for _, f := range append(p.theirs, p.ours...) {
		f.Close()
	}
}
