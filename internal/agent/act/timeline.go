package act

import (
	"context"
	"errors"
)

// call does one thing of an action, and notes it as a step of its own.
func (p *Pod) call(ctx context.Context, step, container string, do func() error) error {
	s := p.cfg.Timeline.Begin(p.uid, step, container)
	err := do()
	s.End(outcome(ctx, err))
	return err
}

// outcome is how something has ended, in a word; empty: well. The words of the error are in the pod's events.
func outcome(ctx context.Context, err error) string {
	var failed *Failed
	var never *Never
	switch {
	case err == nil:
		return ""
	case errors.Is(ctx.Err(), context.Canceled):
		return "cancelled"
	case errors.As(err, &never):
		return never.Reason
	case errors.As(err, &failed) && failed.Reason != "":
		return failed.Reason
	}
	return "failed"
}
