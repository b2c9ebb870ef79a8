package act

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
)

// Volumes makes the volumes of pods on the host, and keeps them up to date.
type Volumes struct {
	Files VolumeFiles
	Tell  *Tell
}

// VolumeFiles makes volumes, each by its name. What fails is said in a kubelet's words. Both are idempotent.
type VolumeFiles interface {
	// Setup makes a volume of the pod.
	Setup(ctx context.Context, pod *v1.Pod, name string) error
	// Update brings one up to date with what it shows.
	Update(ctx context.Context, pod *v1.Pod, name string) error
}

// mount makes a volume of the pod on the host.
func (v *Volumes) mount(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	err := v.Files.Setup(ctx, pod, a.Volume)
	v.told(ctx, pod, err)
	return ofObjects(plan.ReasonFailedVolumes, err)
}

// update brings a volume up to date with what it shows.
func (v *Volumes) update(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	err := v.Files.Update(ctx, pod, a.Volume)
	v.told(ctx, pod, err)
	return because(plan.ReasonFailedVolumes, err)
}

// told tells of a volume that is not as it shall be.
func (v *Volumes) told(ctx context.Context, pod *v1.Pod, err error) {
	if err != nil && ctx.Err() == nil {
		v.Tell.Event(pod, "", v1.EventTypeWarning, plan.ReasonFailedVolumes, err.Error())
	}
}
