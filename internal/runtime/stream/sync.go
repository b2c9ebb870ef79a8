package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/runtime/ident"
)

// maxSyncOutput is how much of each stream Run keeps, in bytes; the rest is read and thrown away while the command runs on.
const maxSyncOutput = 16 << 20

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
	exit, err := r.execPipes(ctx, protocol.ExecRequest{ID: id, ExecID: ident.New(), Process: process}, nil, &out, &errOut)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Result{}, fmt.Errorf("command %q in container %s was killed after its time-out of %v: %w", cmd, id, timeout, context.DeadlineExceeded)
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Stdout: out.kept.Bytes(), Stderr: errOut.kept.Bytes(), Code: exit.Code}, nil
}

// capped keeps the first maxSyncOutput bytes and takes the rest in silence.
type capped struct{ kept bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	if room := maxSyncOutput - c.kept.Len(); room > 0 {
		c.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
