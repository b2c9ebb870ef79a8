package worker

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/plan"
)

// operation is an action that is being carried out.
type operation struct {
	action plan.Action
	pod    *v1.Pod
	begun  time.Time
	// late: it has been told that it takes long.
	late   bool
	cancel context.CancelFunc
}

// result is how an operation ended.
type result struct {
	op *operation
	// cancelled: it was no longer wanted, so its error says nothing.
	cancelled bool
	err       error
}

// begin carries an action out in a goroutine of its own; one with the same key that is under way is cancelled.
func (w *Worker) begin(ctx context.Context, pod *v1.Pod, a *plan.Action) {
	key := a.Key()
	if old := w.ongoing[key]; old != nil {
		old.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	op := &operation{action: *a, pod: pod, begun: time.Now(), cancel: cancel}
	w.ongoing[key] = op
	if a.Verb == plan.UpdateVolume {
		// What changes from now on is for the next time.
		delete(w.stale, a.Volume)
	}
	w.facts.Begun(a)
	w.log.Debug("action", "verb", a.Verb, "on", key.On())
	w.ops.Go(func() {
		err := w.cfg.Actions.Do(ctx, pod, op.action)
		r := result{op: op, cancelled: ctx.Err() != nil, err: err}
		cancel()
		if w.cfg.Acted != nil {
			w.cfg.Acted(w.uid)
		}
		w.results <- r
	})
}

// finished takes note of how an operation ended.
func (w *Worker) finished(r result) {
	key := r.op.action.Key()
	if w.ongoing[key] != r.op {
		// It was overtaken.
		return
	}
	delete(w.ongoing, key)
	w.facts.Ended(&r.op.action, r.err == nil)
	if key.Verb == plan.GrantDevices {
		w.granted.asked(r)
	}
	if r.err == nil {
		w.retries.succeeded(r.op)
		return
	}
	if key.Verb == plan.UpdateVolume {
		w.stale[key.Volume] = true
	}
	if r.cancelled {
		return
	}
	var never *act.Never
	if errors.As(r.err, &never) {
		w.ruling.verdict = never.Verdict
		w.log.Warn("the pod fails", "reason", never.Reason, "error", r.err)
		return
	}
	f := w.retries.failed(r.op, r.err)
	switch key.Verb {
	case plan.StopContainer, plan.StopSandbox, plan.RemoveSandbox:
		w.cfg.Actions.Event(r.op.pod, "", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+r.err.Error())
	}
	w.log.Warn("an action failed; it is tried again", "verb", r.op.action.Verb, "on", key.On(), "reason", f.Reason,
		"failures", f.Count, "error", r.err, "again", time.Until(f.RetryAt()).Round(time.Millisecond))
}
