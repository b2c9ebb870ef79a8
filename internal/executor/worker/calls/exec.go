//go:build cgo

package calls

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/execution"
)

// exec serves Exec.
func (cs *Calls) exec(ctx context.Context, call *protocol.Call, req protocol.ExecRequest) (resp protocol.ExecResponse, err error) {
	c, err := cs.cfg.Table.Get(req.ID)
	if err != nil {
		return resp, err
	}
	if err := checkExec(call, req); err != nil {
		return resp, err
	}
	x := &execution.Execution{}
	if err := c.BeginExec(req.ExecID, x); err != nil {
		return resp, err
	}
	defer c.EndExec(req.ExecID)
	cs.cfg.Specs.ClampProcess(req.ID, req.Process)
	code, at, err := cs.cfg.Engines.Of(c.Record()).Exec(ctx, engine.Further{Call: call, Container: c, Execution: x, Request: req})
	if programErr := (*spawn.ProgramError)(nil); errors.As(err, &programErr) {
		// The words are the program's alone: whoever asked knows in which container, and a user of kubectl reads them.
		err = errdefs.ErrInvalidArgument.WithMessage(err.Error())
	}
	if err != nil {
		return resp, err
	}
	return protocol.ExecResponse{Exit: protocol.Exit{Code: code, At: at}}, nil
}

func checkExec(call *protocol.Call, req protocol.ExecRequest) error {
	if !validID(req.ExecID) {
		return fmt.Errorf("%w: exec id %q: want up to 128 letters, digits and _ + . -, the first a letter or digit", errdefs.ErrInvalidArgument, req.ExecID)
	}
	if err := bundle.CheckProcess(req.Process); err != nil {
		return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if req.Process.Terminal {
		return checkStreams(call, true) // the socket to which the pty's master goes
	}
	return checkStreams(call, req.Stdin, req.Stdout, req.Stderr)
}
