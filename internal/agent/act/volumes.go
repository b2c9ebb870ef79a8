package act

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
)

// mountVolume makes a volume of the pod on the host.
func (p *Pod) mountVolume(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	err := p.cfg.Volumes.Setup(ctx, pod, a.Volume)
	p.tellVolume(ctx, pod, err)
	return ofObjects(plan.ReasonFailedVolumes, err)
}

// updateVolume brings a volume up to date with what it shows.
func (p *Pod) updateVolume(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	err := p.cfg.Volumes.Update(ctx, pod, a.Volume)
	p.tellVolume(ctx, pod, err)
	return because(plan.ReasonFailedVolumes, err)
}

// tellVolume tells of a volume that is not as it shall be.
func (p *Pod) tellVolume(ctx context.Context, pod *v1.Pod, err error) {
	if err != nil && ctx.Err() == nil {
		p.Event(pod, "", v1.EventTypeWarning, plan.ReasonFailedVolumes, err.Error())
	}
}
