//go:build cgo

package worker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
)

// kill serves Kill. It waits for no other operation on the container.
func (w *Worker) kill(ctx context.Context, req protocol.KillRequest) error {
	const maxSignal = 64
	if req.Signal < 0 || req.Signal > maxSignal {
		return fmt.Errorf("%w: signal %d: want 0 to %d", errdefs.ErrInvalidArgument, req.Signal, maxSignal)
	}
	sig := unix.Signal(req.Signal)
	c, err := w.existing(req.ID)
	if err != nil {
		return err
	}
	if req.ExecID != "" {
		x, err := c.exec(req.ExecID)
		if err != nil {
			return err
		}
		if req.All {
			rec := c.snapshot()
			return x.signalSession(rec.Group(), sig)
		}
		return x.signal(sig)
	}
	if req.All {
		// Processes may outlive the first one, so this is not only for a running container.
		rec := c.snapshot()
		return rec.Group().Kill(ctx, sig)
	}
	c.mu.Lock()
	pidfd := c.pidfd
	c.mu.Unlock()
	if pidfd == nil {
		return nil // it has exited, or its program cannot be executed
	}
	rec := c.snapshot()
	return w.starters.of(rec).signal(ctx, rec, pidfd, sig)
}
