//go:build cgo

package worker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
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
//
// The steps as they happen, also where one fails, are in testdata/handover-*.txt of the executor.

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
	goOn, err := w.calls.Stop(ctx)
	if err != nil {
		return fmt.Errorf("stop for the executor of build %s: %w", heir.Build, err)
	}
	defer goOn()
	if err := failpoint.Hit("executor/worker/frozen"); err != nil {
		return err
	}
	w.log.Info("this worker has stopped to work, for another executor", "build", heir.Build)
	err = w.keeper.Commit(context.WithoutCancel(ctx))
	return fmt.Errorf("go on as the executor of build %s: %w", heir.Build, err)
}
