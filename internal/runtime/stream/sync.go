package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/stream/wire"
)

const (
	// maxStream is how much Run keeps of each stream, in bytes; the rest is read and thrown away while the command runs on.
	maxStream = 16 << 20
	// maxBoth is how much it returns of both together: kubelets take messages of 16 MiB, of which some bytes are the message's
	// own, and refuse a larger one as a whole.
	maxBoth = 16<<20 - 1<<10
)

// Result is how a command ended and what it printed.
type Result struct {
	Stdout, Stderr []byte
	Code           int
	release        func()
}

// Release says that what the command printed is no longer kept. It is called once.
func (r Result) Release() { r.release() }

// Run runs a command to its end and collects what it prints; what that takes is counted until the result is released. After the time-out,
// 0 meaning none, the command is killed and the error is context.DeadlineExceeded. It is errdefs.ErrResourceExhausted when too many commands
// run in the container, or when there was no room for what the command printed; it has run to its end then all the same.
func (r *Runner) Run(ctx context.Context, id ids.ContainerID, cmd []string, timeout time.Duration) (_ Result, err error) {
	end, err := r.bounds.begin(id)
	if err != nil {
		return Result{}, err
	}
	defer end()
	process, err := r.Containers.Process(id, cmd, false)
	if err != nil {
		return Result{}, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	out := &printed{account: account{bounds: &r.bounds, container: id}}
	defer func() {
		if err != nil {
			out.account.close()
		}
	}()
	exit, err := r.execPipes(ctx, protocol.ExecRequest{ID: id, ExecID: ids.ExecID(randomid.New()), Process: process}, wire.Streams{Stdout: capped{out, &out.out}, Stderr: capped{out, &out.errOut}})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Result{}, fmt.Errorf("command %q in container %s was killed after its time-out of %v: %w", cmd, id, timeout, context.DeadlineExceeded)
	}
	if err != nil {
		return Result{}, fmt.Errorf("command %q: %w", cmd, err)
	}
	if out.lost {
		return Result{}, fmt.Errorf("command %q in container %s has ended with code %d, and what it printed is lost: calls that run at the same time keep %d MiB of output of one container, and %d MiB in all: let fewer that print much run at once, or stream their output (Exec): %w",
			cmd, id, exit.Code, maxHeldOfContainer>>20, maxHeld>>20, errdefs.ErrResourceExhausted)
	}
	stdout, stderr := fit(out.out, out.errOut, maxBoth)
	return Result{Stdout: stdout, Stderr: stderr, Code: exit.Code, release: out.account.close}, nil
}

// fit cuts two streams to what both may have together. One that takes no more than half of it is kept whole.
func fit(a, b []byte, most int) (cutA, cutB []byte) {
	if len(a)+len(b) <= most {
		return a, b
	}
	roomB := max(most-len(a), most/2)
	b = b[:min(len(b), roomB)]
	return a[:min(len(a), most-len(b))], b
}

// printed is what a command has printed so far.
type printed struct {
	account account

	mu          sync.Mutex
	out, errOut []byte
	lost        bool // there was no room for one of the streams, so neither is kept: a part of it would be taken for the whole
}

// capped is a stream of which the first bytes are kept; the rest is taken in silence.
type capped struct {
	of   *printed
	kept *[]byte
}

func (c capped) Write(p []byte) (int, error) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	keep := p[:min(len(p), maxStream-len(*c.kept))]
	if len(keep) > 0 && !c.of.lost && c.of.grow(c.kept, len(*c.kept)+len(keep)) {
		*c.kept = append(*c.kept, keep...)
	}
	return len(p), nil
}

// firstKept is the size of a buffer at first, in bytes; most commands print less.
const firstKept = 1 << 10

// grow makes a buffer as large as n. Both the old and the new one are there while one is copied.
func (p *printed) grow(buf *[]byte, n int) bool {
	if n <= cap(*buf) {
		return true
	}
	size := min(maxStream, max(n, 2*cap(*buf), firstKept))
	if !p.account.take(size) {
		p.out, p.errOut, p.lost = nil, nil, true
		p.account.close()
		return false
	}
	larger := make([]byte, len(*buf), size)
	copy(larger, *buf)
	p.account.give(cap(*buf))
	*buf = larger
	return true
}
