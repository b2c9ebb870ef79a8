package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/runtime/ident"
)

// maxSyncOutput is how much output Run keeps, in bytes; the rest is read and thrown away while the command runs on. CRI caps
// a whole answer at 16 MB, and clients take messages of 16 MiB, of which some bytes are the message's own.
const maxSyncOutput = 16<<20 - 1<<10

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
	room := &budget{left: maxSyncOutput}
	out, errOut := capped{room: room}, capped{room: room}
	exit, err := r.execPipes(ctx, protocol.ExecRequest{ID: id, ExecID: ident.New(), Process: process}, nil, &out, &errOut)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Result{}, fmt.Errorf("command %q in container %s was killed after its time-out of %v: %w", cmd, id, timeout, context.DeadlineExceeded)
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Stdout: out.kept.Bytes(), Stderr: errOut.kept.Bytes(), Code: exit.Code}, nil
}

// budget is what two streams may keep together.
type budget struct {
	mu   sync.Mutex
	left int
}

// take grants at most n bytes.
func (b *budget) take(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left)
	b.left -= n
	return n
}

// capped keeps what the budget grants and takes the rest in silence.
type capped struct {
	room *budget
	kept bytes.Buffer
}

func (c *capped) Write(p []byte) (int, error) {
	c.kept.Write(p[:c.room.take(len(p))])
	return len(p), nil
}
