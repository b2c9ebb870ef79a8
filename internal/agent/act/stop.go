package act

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/plan"
)

// stopContainer ends a container's processes, by force when its time is over.
func (p *Pod) stopContainer(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	p.tellStop(pod, a)
	left := max(time.Until(a.StopBy), 0)
	// CRI knows whole seconds; a fraction that is lost by rounding down would be lost to the container.
	seconds := int64((left + time.Second - 1) / time.Second)
	ctx, cancel := context.WithTimeout(ctx, left+cri.ChangeTimeout)
	defer cancel()
	_, err := p.cfg.Runtime.StopContainer(ctx, &criv1.StopContainerRequest{ContainerId: a.ID, Timeout: seconds})
	if err != nil && !gone(err) {
		return fmt.Errorf("stop container %s (%s): %s", a.Container, a.ID, text(err))
	}
	return nil
}

func (p *Pod) removeContainer(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	ctx, cancel := context.WithTimeout(ctx, cri.ChangeTimeout)
	defer cancel()
	_, err := p.cfg.Runtime.RemoveContainer(ctx, &criv1.RemoveContainerRequest{ContainerId: a.ID})
	if err != nil && !gone(err) {
		return fmt.Errorf("remove container %s: %s", a.ID, text(err))
	}
	return p.cfg.LogLinks.Remove(loglinks.Container{Pod: pod.Name, Namespace: pod.Namespace, Name: a.Container, ID: a.ID})
}

// tellStop tells of a stop that begins, once.
func (p *Pod) tellStop(pod *v1.Pod, a plan.Action) {
	if a.Told {
		return
	}
	why := a.Why
	if why == "" {
		why = "Stopping container " + a.Container
	}
	p.Event(pod, a.Container, v1.EventTypeNormal, "Killing", why)
}
