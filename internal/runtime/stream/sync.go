package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/runtime/ident"
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
}

// Run runs a command to its end and collects what it prints. After the time-out, 0 meaning none, the command is killed
// and the error is context.DeadlineExceeded.
func (r *Runner) Run(ctx context.Context, id string, cmd []string, timeout time.Duration) (Result, error) {
	process, err := r.Containers.Process(id, cmd, false)
	if err != nil {
		return Result{}, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var out, errOut capped
	exit, err := r.execPipes(ctx, protocol.ExecRequest{ID: id, ExecID: ident.New(), Process: process}, wire.Streams{Stdout: &out, Stderr: &errOut})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Result{}, fmt.Errorf("command %q in container %s was killed after its time-out of %v: %w", cmd, id, timeout, context.DeadlineExceeded)
	}
	if err != nil {
		return Result{}, fmt.Errorf("command %q: %w", cmd, err)
	}
	stdout, stderr := fit(out.kept.Bytes(), errOut.kept.Bytes(), maxBoth)
	return Result{Stdout: stdout, Stderr: stderr, Code: exit.Code}, nil
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

// capped keeps the first bytes and takes the rest in silence.
type capped struct {
	kept bytes.Buffer
}

func (c *capped) Write(p []byte) (int, error) {
	c.kept.Write(p[:min(len(p), maxStream-c.kept.Len())])
	return len(p), nil
}
