//go:build cgo

package calls

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/life"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// start serves Start.
func (cs *Calls) start(ctx context.Context, id ids.ContainerID) (protocol.StartResponse, error) {
	c, release, err := cs.cfg.Table.Lock(ctx, id)
	if err != nil {
		return protocol.StartResponse{}, err
	}
	defer release()
	rec := c.Record()
	switch {
	case rec.Exit != nil && rec.Exit.Reason == protocol.ReasonStartError:
		return protocol.StartResponse{}, startError(id, rec.Exit.Message)
	case rec.Exit != nil:
		return protocol.StartResponse{}, fmt.Errorf("%w: container %s has exited with code %d; it cannot be started again", errdefs.ErrFailedPrecondition, id, rec.Exit.Code)
	case rec.StartError != "":
		now := time.Now().UTC()
		err := cs.cfg.Table.Change(c, func(r *record.Record) {
			r.Stage, r.StartedAt = record.StageExited, now
			r.Exit = &protocol.Exit{Code: life.CodeStartError, At: now, Reason: protocol.ReasonStartError, Message: r.StartError}
		})
		if err != nil {
			return protocol.StartResponse{}, err
		}
		c.SetEnded()
		c.SetExited()
		return protocol.StartResponse{}, startError(id, rec.StartError)
	case !rec.StartedAt.IsZero():
		return protocol.StartResponse{StartedAt: rec.StartedAt}, nil
	}
	if err := cs.letGo(context.WithoutCancel(ctx), c, rec); err != nil {
		return protocol.StartResponse{}, err
	}
	rec = c.Record()
	return protocol.StartResponse{StartedAt: rec.StartedAt}, nil
}

func startError(id ids.ContainerID, message string) error {
	return fmt.Errorf("start container %s: %s", id, message)
}

// letGo lets the first process, which waits, execute the program.
func (cs *Calls) letGo(ctx context.Context, c *table.Container, rec record.Record) error {
	// StartedAt is stored without being shown: the program does not run yet, but a successor must expect that it does.
	rec.Stage, rec.StartedAt = record.StageRunning, time.Now().UTC()
	err := cs.cfg.Table.Write(c, func(r *record.Record) { r.Stage, r.StartedAt = rec.Stage, rec.StartedAt })
	if err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/starting"); err != nil {
		return err
	}
	executed, err := cs.cfg.Engines.Of(rec).Start(ctx, c, rec)
	if err != nil {
		return fmt.Errorf("start container %s: %w", rec.ID, err)
	}
	if executed {
		cs.cfg.Table.Show(c)
		c.Stdio().TakeHead() // what the program prints is no error of the init code
		return nil
	}
	// Nobody is shown that it runs, for it never did: a pod would be ready for a moment.
	select {
	case <-c.Exited():
	case <-cs.cfg.Ctx.Done():
		return cs.cfg.Ctx.Err()
	}
	if final := c.Record(); final.Exit.Reason == protocol.ReasonStartError {
		return startError(rec.ID, final.Exit.Message)
	}
	return nil // it was killed before it came to execute: that is no error of Start's
}
