package worker

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/pods"
)

// operation is an action that is being carried out.
type operation struct {
	action plan.Action
	pod    *v1.Pod
	begun  time.Time
	cancel context.CancelFunc
}

// result is how an operation ended.
type result struct {
	op *operation
	// cancelled: it was no longer wanted, so its error says nothing.
	cancelled bool
	err       error
}

// failedBecause gives an error the waiting reason that the status shows.
type failedBecause struct {
	reason string
	// image is the image that was not to be had; empty: it is not about an image.
	image string
	// fault: see plan.Failure.
	fault bool
	err   error
}

func (f *failedBecause) Error() string { return f.err.Error() }
func (f *failedBecause) Unwrap() error { return f.err }

func because(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &failedBecause{reason: reason, err: err}
}

// begin carries an action out in a goroutine of its own; one with the same key that is under way is cancelled.
func (w *Worker) begin(ctx context.Context, pod *v1.Pod, a plan.Action) {
	key := a.Key()
	if old := w.ongoing[key]; old != nil {
		old.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	op := &operation{action: a, pod: pod, begun: time.Now(), cancel: cancel}
	w.ongoing[key] = op
	if a.Verb == plan.UpdateVolumes {
		// What changes from now on is for the next time.
		w.stale = false
	}
	w.log.Debug("action", "verb", a.Verb, "on", key.On)
	w.ops.Go(func() {
		err := w.act(ctx, pod, a)
		r := result{op: op, cancelled: ctx.Err() != nil, err: err}
		cancel()
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
	if r.err == nil {
		delete(w.failures, key)
		w.havePulled(r.op, "")
		w.succeeded(r.op.action)
		return
	}
	if key.Verb == plan.UpdateVolumes {
		w.stale = true
	}
	if r.cancelled {
		return
	}
	var never *rejectedError
	if errors.As(r.err, &never) {
		w.rejection = &never.Rejection
		w.log.Warn("the pod fails", "reason", never.Reason, "error", r.err)
		return
	}
	f := plan.Failure{Message: r.err.Error(), At: time.Now(), Count: 1}
	var why *failedBecause
	if errors.As(r.err, &why) {
		f.Reason, f.Image, f.Fault = why.reason, why.image, why.fault
	}
	w.havePulled(r.op, f.Image)
	if f.Pulls() {
		f.At, f.Count = w.pullFailed(r.op, f)
	} else {
		f = f.After(w.failures[key])
	}
	w.failures[key] = f
	switch key.Verb {
	case plan.StopContainer, plan.StopSandbox, plan.RemoveSandbox:
		w.event(r.op.pod, "", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+r.err.Error())
	}
	w.log.Warn("an action failed; it is tried again", "verb", r.op.action.Verb, "on", key.On, "reason", f.Reason,
		"failures", f.Count, "error", r.err, "again", time.Until(f.RetryAt()).Round(time.Millisecond))
}

// pullFailed counts the failures of an image in this pod, whichever container wanted it. Of pulls side by side the first one to
// fail counts, so that all of them are tried again together.
func (w *Worker) pullFailed(op *operation, f plan.Failure) (at time.Time, count int) {
	last := w.pulls[f.Image]
	if last.Count > 0 && last.At.After(op.begun) {
		return last.At, last.Count
	}
	f.Count = last.Count + 1
	w.pulls[f.Image] = f
	return f.At, f.Count
}

// havePulled lets the back-off of images begin anew that a container has got. failed is the one that it has not got; those after
// that were not asked for.
func (w *Worker) havePulled(op *operation, failed string) {
	if op.action.Verb != plan.StartContainer {
		return
	}
	_, c := pods.ContainerNamed(&op.pod.Spec, op.action.Container)
	if c == nil {
		return
	}
	for _, ref := range imageRefs(op.pod, c) {
		if ref == failed {
			return
		}
		delete(w.pulls, ref)
	}
}

// succeeded remembers the effects of actions that neither the runtime nor the API server can be asked for.
func (w *Worker) succeeded(a plan.Action) {
	switch a.Verb {
	case plan.GrantDevices:
		w.granted = true
	case plan.Release:
		w.released, w.removed, w.granted = true, a.Final, false
	case plan.DeleteObject:
		w.deleted = true
	}
}

// verbs carry the actions out.
var verbs = map[plan.Verb]func(w *Worker, ctx context.Context, pod *v1.Pod, a plan.Action) error{
	plan.GrantDevices: func(w *Worker, ctx context.Context, pod *v1.Pod, _ plan.Action) error {
		return w.grantDevices(ctx, pod)
	},
	plan.CreateSandbox: (*Worker).createSandbox,
	plan.UpdateVolumes: func(w *Worker, ctx context.Context, pod *v1.Pod, _ plan.Action) error {
		return w.updateVolumes(ctx, pod)
	},
	plan.StopSandbox: func(w *Worker, ctx context.Context, _ *v1.Pod, a plan.Action) error { return w.stopSandbox(ctx, a.ID) },
	plan.RemoveSandbox: func(w *Worker, ctx context.Context, _ *v1.Pod, a plan.Action) error {
		return w.removeSandbox(ctx, a.ID)
	},
	plan.StartContainer: (*Worker).startContainer,
	plan.StopContainer:  (*Worker).stopContainer,
	plan.RemoveContainer: func(w *Worker, ctx context.Context, _ *v1.Pod, a plan.Action) error {
		return w.removeContainer(ctx, a.ID)
	},
	plan.Release: func(w *Worker, ctx context.Context, pod *v1.Pod, a plan.Action) error {
		return w.release(ctx, pod, a.Final)
	},
	plan.DeleteObject: func(w *Worker, ctx context.Context, pod *v1.Pod, _ plan.Action) error {
		return w.deleteObject(ctx, pod)
	},
}

// act carries an action out.
func (w *Worker) act(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	do, ok := verbs[a.Verb]
	if !ok {
		return errors.New("unknown action " + string(a.Verb))
	}
	return do(w, ctx, pod, a)
}

func uidOf(ref podspec.Ref) types.UID { return types.UID(ref.UID) }

func (w *Worker) podUID() types.UID { return types.UID(w.uid) }
