package act

import (
	"context"
	"os"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
)

// makeVolumes makes the pod's directories and volumes.
func (p *Pod) makeVolumes(ctx context.Context, pod *v1.Pod) error {
	err := p.cfg.Volumes.Setup(ctx, pod)
	if err == nil {
		err = os.MkdirAll(p.logDir(pod), 0o755)
	}
	if err != nil && ctx.Err() == nil {
		p.Event(pod, "", v1.EventTypeWarning, plan.ReasonFailedVolumes, err.Error())
	}
	return ofObjects(plan.ReasonFailedVolumes, err)
}

func (p *Pod) updateVolumes(ctx context.Context, pod *v1.Pod) error {
	err := p.cfg.Volumes.Update(ctx, pod)
	if err != nil && ctx.Err() == nil {
		p.Event(pod, "", v1.EventTypeWarning, plan.ReasonFailedVolumes, err.Error())
	}
	return because(plan.ReasonFailedVolumes, err)
}
