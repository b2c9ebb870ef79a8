package act

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/pods"
)

// Tell tells what is done for pods: by events, and as steps of the time lines of their starts.
type Tell struct {
	Events record.EventRecorder
	// Timeline remembers how pods' starts go; nil: nobody does.
	Timeline *podstarts.Recorder
}

// Event tells of something that happened to the pod, or to one of its containers.
func (t *Tell) Event(pod *v1.Pod, containerName, kind, reason, message string) {
	ref := &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	if containerName != "" {
		ref.FieldPath = "spec.containers{" + containerName + "}"
		if role, c := pods.ContainerNamed(&pod.Spec, containerName); c != nil && role.AmongInit() {
			ref.FieldPath = "spec.initContainers{" + containerName + "}"
		}
	}
	t.Events.Event(ref, kind, reason, message)
}

// step does one thing, and notes it as a step of its own. on is the container or the volume that it is for.
func (t *Tell) step(ctx context.Context, pod *v1.Pod, name, on string, do func() error) error {
	s := t.Timeline.Begin(string(pod.UID), name, on)
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
