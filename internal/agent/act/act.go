// Package act carries out the actions that package plan decides: a file a kind of action.
//
// Each action is idempotent, ends soon after its context, and tells of itself by events in a kubelet's words. What it finds out that the runtime and the API
// server cannot be asked for is noted by the caller (plan.Facts). Nothing here decides what is done next.
package act

import (
	"cmp"
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod.dev/monopod/internal/agent/env"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Actions carries out the actions of all pods. Its methods may be called concurrently.
type Actions struct {
	*Tell
	verbs map[plan.Verb]doer
}

// doer carries out the actions of a verb.
type doer = func(ctx context.Context, pod *v1.Pod, a plan.Action) error

// Parts are what carries the verbs out: a type a file, each with what it needs.
type Parts struct {
	Grants    Grants
	Volumes   Volumes
	Sandboxes Sandboxes
	Starts    Starts
	Hooks     Hooks
	Stops     Stops
	Releases  Releases
	Deletions Deletions
}

// New puts them together. A new verb is a row here, and a method.
func New(tell *Tell, p Parts) *Actions {
	return &Actions{tell, map[plan.Verb]doer{
		plan.GrantDevices:    p.Grants.grant,
		plan.MountVolume:     p.Volumes.mount,
		plan.UpdateVolume:    p.Volumes.update,
		plan.CreateSandbox:   p.Sandboxes.create,
		plan.StopSandbox:     p.Sandboxes.stop,
		plan.RemoveSandbox:   p.Sandboxes.remove,
		plan.StartContainer:  p.Starts.start,
		plan.PostStart:       p.Hooks.postStart,
		plan.PreStop:         p.Hooks.preStop,
		plan.StopContainer:   p.Stops.stop,
		plan.RemoveContainer: p.Stops.remove,
		plan.Release:         p.Releases.release,
		plan.DeleteObject:    p.Deletions.delete,
	}}
}

// Do carries an action out. An error that says more than what went wrong is a *Failed, or a *Never.
func (acts *Actions) Do(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	do, ok := acts.verbs[a.Verb]
	if !ok {
		return errors.New("unknown action " + string(a.Verb))
	}
	return acts.step(ctx, pod, string(a.Verb), cmp.Or(a.ContainerName, a.Volume), func() error { return atPoints(ctx, pod, a, do) })
}

func atPoints(ctx context.Context, pod *v1.Pod, a plan.Action, do doer) error {
	point := "agent/" + string(a.Verb)
	if err := failpoint.Hit(point + "/begun"); err != nil {
		return err
	}
	if err := do(ctx, pod, a); err != nil {
		return err
	}
	return failpoint.Hit(point + "/done")
}

// Failed is an error with what the pod's status shows of it.
type Failed struct {
	// Reason is the waiting reason.
	Reason string
	// Image is the image that was not to be had; empty: it is not about an image.
	Image string
	// Fault: see plan.Failure.
	Fault bool
	// Lasts: see plan.Failure.
	Lasts bool
	Err   error
}

// Error implements error.
func (f *Failed) Error() string { return f.Err.Error() }

// Unwrap gives the error without a reason.
func (f *Failed) Unwrap() error { return f.Err }

func because(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &Failed{Reason: reason, Err: err}
}

// ofObjects is because, for what may fail because a ConfigMap or a Secret is not there, or has not the key that is asked for.
func ofObjects(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &Failed{Reason: reason, Lasts: lacksObject(err), Err: err}
}

func lacksObject(err error) bool {
	var key *env.NoKey
	if errors.As(err, &key) {
		return true
	}
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) || answer.Status().Details == nil {
		return false
	}
	kind := answer.Status().Details.Kind
	return kind == "configmaps" || kind == "secrets" || kind == "clustertrustbundles"
}

// Never ends a pod: it is never to have what it asks for.
type Never struct{ *plan.Verdict }

// Error is the message.
func (e *Never) Error() string { return e.Message }
