package act

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cdiprobe"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/devices"
)

// grantDevices has the pod admitted with all its devices before anything of it is made.
func (p *Pod) grantDevices(ctx context.Context, pod *v1.Pod) error {
	v, err := p.cfg.Devices.Admit(ctx, pod)
	switch {
	case err != nil:
		v = devices.Verdict{Phase: devices.Held, Reason: plan.ReasonDevicesNotReady, Message: err.Error()}
	case v.Phase == devices.Admitted:
		return nil
	}
	if v.Phase == devices.Failed {
		// The pod's end tells of it.
		return &Never{plan.Rejected(v.Reason, v.Message)}
	}
	return &Failed{Reason: v.Reason, Fault: err != nil, Err: errors.New(v.Message)}
}

// devicesOf are the devices that a container is started with; it may have none.
func (p *Pod) devicesOf(ctx context.Context, pod *v1.Pod, c *v1.Container) (devices.Grant, error) {
	if len(podspec.ExtendedResources(c)) == 0 {
		return devices.Grant{}, nil
	}
	grant, err := p.cfg.Devices.Grant(ctx, pod, c.Name)
	var refused *devices.StartError
	if errors.As(err, &refused) {
		return grant, because(plan.ReasonCreateConfigError, err)
	}
	return grant, because(plan.ReasonDevicesNotReady, err)
}

// createContainer creates a container; one with CDI devices, in whichever way it asks for them, only by a runtime that is known not to leave them out.
func (p *Pod) createContainer(ctx context.Context, c *v1.Container, req *criv1.CreateContainerRequest) (id string, err error) {
	var verdict cdiprobe.Verdict
	asks := cdiprobe.Asks(req.Config)
	if asks {
		switch verdict, err = p.cfg.CDI.Ask(ctx, req); {
		case err != nil:
			return "", because(plan.ReasonCreateError, fmt.Errorf("it is not known whether the runtime honours CDI devices: %s", text(err)))
		case verdict.Answer != cdiprobe.Honours:
			return "", because(plan.ReasonDevicesNotReady, errors.New(cdiprobe.Held(c.Name, verdict)))
		}
	}
	created, err := p.cfg.Runtime.CreateContainer(ctx, req)
	if err != nil {
		return "", because(plan.ReasonCreateError, errors.New(lasting(text(err))))
	}
	if asks && p.cfg.Runtime.Generation() != verdict.Generation {
		// Another one may have created it than the one that was asked. It is made anew: one that was not started is removed before.
		return "", because(plan.ReasonCreateError, errors.New("the container runtime was restarted while the container was created"))
	}
	return created.ContainerId, nil
}

// tellOverridden tells of what a device brings and the container has otherwise by its specification.
func (p *Pod) tellOverridden(pod *v1.Pod, c *v1.Container, names []string) {
	for _, name := range names {
		p.Event(pod, c.Name, v1.EventTypeWarning, "DeviceEnvironment",
			fmt.Sprintf("a device of the container brings the variable %s with another value; that of the pod's specification is used", name))
	}
}
