//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// A handover makes the executor go on as another program, under the containers:
//
//	the keeper seals the program, and asks it whether it can go on with what there is   (nothing has changed)
//	this worker stops: no call is under way, all output that was read is in the logs    (it can go on)
//	the keeper executes the program, in its place: pid, children and descriptors stay   (this worker waits)
//	the new keeper starts its worker, which takes all that the keeper holds             (this worker waits)
//	the new keeper ends this worker, and the new one begins                             (as by this one's death)
//	the new keeper forgets the old program when its worker serves
//
// Until it is ended this worker makes the keeper's death good, as ever: what the new program does not survive makes it the keeper, of the old program. From
// then on the new worker does. At no moment the keeper is alone with what it holds.

// handoverPatience bounds how long calls that are under way, and output that is being written, may hold up a handover.
const handoverPatience = 10 * time.Second

// handover serves Handover. It returns only when the executor stays what it is.
func (w *Worker) handover(ctx context.Context, call *protocol.Call, req protocol.HandoverRequest) error {
	if len(call.FDs) != 1 {
		return fmt.Errorf("%w: Handover brings %d descriptors, want the program's", errdefs.ErrInvalidArgument, len(call.FDs))
	}
	w.handing.Lock() // a second call is lost with this worker, or finds that the first one has failed
	defer w.handing.Unlock()
	heir, err := w.keeper.Prepare(ctx, hold.PrepareRequest{Env: req.Env}, call.FDs[0])
	if err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/prepared"); err != nil {
		return err
	}
	thaw, err := w.freeze(ctx)
	if err != nil {
		return fmt.Errorf("stop for the executor of build %s: %w", heir.Build, err)
	}
	defer thaw()
	if err := failpoint.Hit("executor/worker/frozen"); err != nil {
		return err
	}
	w.log.Info("this worker has stopped to work, for another executor", "build", heir.Build)
	err = w.keeper.Commit(context.WithoutCancel(ctx))
	return fmt.Errorf("go on as the executor of build %s: %w", heir.Build, err)
}

// freeze stops all that changes something. After an error nothing is stopped.
func (w *Worker) freeze(ctx context.Context) (thaw func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, handoverPatience)
	defer cancel()
	if err := w.gate.shut(ctx); err != nil {
		return nil, err
	}
	var ios []*stdio.Stdio
	for _, c := range w.all() {
		c.mu.Lock()
		if c.io != nil {
			ios = append(ios, c.io)
		}
		c.mu.Unlock()
	}
	thaw = func() {
		for _, io := range ios {
			io.Thaw()
		}
		w.gate.open()
	}
	errs := make([]error, len(ios))
	var wg sync.WaitGroup
	for i, io := range ios {
		wg.Go(func() { errs[i] = io.Freeze(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		thaw()
		return nil, err
	}
	return thaw, nil
}
