//go:build cgo

package calls

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
)

// kill serves Kill. It waits for no other operation on the container.
func (cs *Calls) kill(ctx context.Context, req protocol.KillRequest) error {
	const maxSignal = 64
	if req.Signal < 0 || req.Signal > maxSignal {
		return fmt.Errorf("%w: signal %d: want 0 to %d", errdefs.ErrInvalidArgument, req.Signal, maxSignal)
	}
	sig := unix.Signal(req.Signal)
	c, err := cs.cfg.Table.Existing(req.ID)
	if err != nil {
		return err
	}
	if req.ExecID != "" {
		x, err := c.Exec(req.ExecID)
		if err != nil {
			return err
		}
		if req.All {
			rec := c.Record()
			return x.SignalSession(rec.Group(), sig)
		}
		return x.Signal(sig)
	}
	if req.All {
		// Processes may outlive the first one, so this is not only for a running container.
		rec := c.Record()
		return rec.Group().Kill(ctx, sig)
	}
	pidfd := c.Process()
	if pidfd == nil {
		return nil // it has exited, or its program cannot be executed
	}
	rec := c.Record()
	return cs.cfg.Engines.Of(rec).Signal(ctx, rec, pidfd, sig)
}
