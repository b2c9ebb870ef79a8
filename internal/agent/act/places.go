package act

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/host/tree"
)

// Places are what a pod has on the host around its sandbox: its directory with its volumes, that of its logs, and its cgroup.
type Places struct {
	Node    *Node
	Files   PodFiles
	Cgroups Cgroups
	Links   LogLinks
	Tell    *Tell
}

// PodFiles are the directories of pods, with their volumes. All are idempotent.
type PodFiles interface {
	// MakePodDir makes the pod's directory.
	MakePodDir(uid types.UID) error
	// Release gives the pod's volumes back, Remove all that it has.
	Release(ctx context.Context, uid types.UID) error
	Remove(ctx context.Context, uid types.UID) error
}

// Cgroups are those of pods and of their classes.
type Cgroups interface {
	// Ensure makes the pod's cgroup with its limits. It is idempotent.
	Ensure(pod *v1.Pod) error
	// Remove removes it, when nothing runs in it any more. It is idempotent.
	Remove(uid types.UID) error
	// UpdateQoS gives the classes the shares of what their pods ask for.
	UpdateQoS() error
}

// make makes all that has to be there before the sandbox.
func (p *Places) make(pod *v1.Pod) error {
	// The directory goes first: by it somebody who comes later knows that there may be logs.
	err := p.Files.MakePodDir(pod.UID)
	if err == nil {
		err = os.MkdirAll(p.Node.logDir(pod), 0o755)
	}
	if err != nil {
		p.Tell.Event(pod, "", v1.EventTypeWarning, "FailedToMakePodDataDirectories", "error making pod data directories: "+err.Error())
		return fmt.Errorf("directories of the pod: %w", err)
	}
	// The runtime would make it too, without limits, and after the classes' shares were needed.
	if err := errors.Join(p.Cgroups.UpdateQoS(), p.Cgroups.Ensure(pod)); err != nil {
		p.Tell.Event(pod, "", v1.EventTypeWarning, "FailedCreatePodContainer", "unable to ensure pod container exists: "+err.Error())
		return fmt.Errorf("cgroup of the pod: %w", err)
	}
	return nil
}

// release gives back what the pod needs only as long as it runs.
func (p *Places) release(ctx context.Context, pod *v1.Pod) error {
	return errors.Join(p.Cgroups.UpdateQoS(), p.Files.Release(ctx, pod.UID))
}

// remove gives back all, with what was kept for its logs.
func (p *Places) remove(ctx context.Context, pod *v1.Pod) error {
	logs := p.Node.logDir(pod)
	err := errors.Join(p.Cgroups.UpdateQoS(), p.Cgroups.Remove(pod.UID), p.Links.RemovePod(pod.Namespace, pod.Name, logs))
	// The logs go first: by the pod's directory the next start knows of a pod that is gone, if we end in between.
	if gone := tree.Remove(ctx, logs); gone != nil {
		return errors.Join(err, gone)
	}
	return errors.Join(err, p.Files.Remove(ctx, pod.UID))
}
