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
	"monopod.dev/monopod/internal/pods"
)

// Pod acts for one pod. Its methods may be called concurrently.
type Pod struct {
	cfg Config
	uid string
}

// For makes what acts for the pod of a UID.
func For(cfg Config, uid string) *Pod { return &Pod{cfg: cfg, uid: uid} }

// doer carries out the actions of a verb.
type doer = func(p *Pod, ctx context.Context, pod *v1.Pod, a plan.Action) error

// verbs carry the actions out.
var verbs = map[plan.Verb]doer{
	plan.GrantDevices:    ofPod((*Pod).grantDevices),
	plan.MountVolume:     (*Pod).mountVolume,
	plan.UpdateVolume:    (*Pod).updateVolume,
	plan.CreateSandbox:   (*Pod).createSandbox,
	plan.StopSandbox:     ofID((*Pod).stopSandbox),
	plan.RemoveSandbox:   ofID((*Pod).removeSandbox),
	plan.StartContainer:  (*Pod).startContainer,
	plan.PostStart:       (*Pod).postStart,
	plan.PreStop:         (*Pod).preStop,
	plan.StopContainer:   (*Pod).stopContainer,
	plan.RemoveContainer: (*Pod).removeContainer,
	plan.Release:         (*Pod).release,
	plan.DeleteObject:    ofPod((*Pod).deleteObject),
}

func ofPod(do func(*Pod, context.Context, *v1.Pod) error) func(*Pod, context.Context, *v1.Pod, plan.Action) error {
	return func(p *Pod, ctx context.Context, pod *v1.Pod, _ plan.Action) error { return do(p, ctx, pod) }
}

func ofID(do func(*Pod, context.Context, string) error) func(*Pod, context.Context, *v1.Pod, plan.Action) error {
	return func(p *Pod, ctx context.Context, _ *v1.Pod, a plan.Action) error { return do(p, ctx, a.ID) }
}

// Do carries an action out. An error that says more than what went wrong is a *Failed, or a *Never.
func (p *Pod) Do(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	do, ok := verbs[a.Verb]
	if !ok {
		return errors.New("unknown action " + string(a.Verb))
	}
	step := p.cfg.Timeline.Begin(p.uid, string(a.Verb), cmp.Or(a.Container, a.Volume))
	err := atPoints(ctx, p, pod, a, do)
	step.End(outcome(ctx, err))
	return err
}

func atPoints(ctx context.Context, p *Pod, pod *v1.Pod, a plan.Action, do doer) error {
	point := "agent/" + string(a.Verb)
	if err := failpoint.Hit(point + "/begun"); err != nil {
		return err
	}
	if err := do(p, ctx, pod, a); err != nil {
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
	return kind == "configmaps" || kind == "secrets"
}

// Never ends a pod: it is never to have what it asks for.
type Never struct{ *plan.Verdict }

// Error is the message.
func (e *Never) Error() string { return e.Message }

// Event tells of something that happened to the pod, or to one of its containers.
func (p *Pod) Event(pod *v1.Pod, container, kind, reason, message string) {
	ref := &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	if container != "" {
		ref.FieldPath = "spec.containers{" + container + "}"
		if role, c := pods.ContainerNamed(&pod.Spec, container); c != nil && role.AmongInit() {
			ref.FieldPath = "spec.initContainers{" + container + "}"
		}
	}
	p.cfg.Events.Event(ref, kind, reason, message)
}
