package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/devices"
)

// rejectedError ends a pod: it is never to have what it asks for.
type rejectedError struct{ plan.Rejection }

// Error is the message.
func (e *rejectedError) Error() string { return e.Message }

// grantDevices has the pod admitted with all its devices before anything of it is made.
func (w *Worker) grantDevices(ctx context.Context, pod *v1.Pod) error {
	v, err := w.cfg.Devices.Admit(ctx, pod)
	switch {
	case err != nil:
		v = devices.Verdict{Phase: devices.Held, Reason: plan.ReasonDevicesNotReady, Message: err.Error()}
	case v.Phase == devices.Admitted:
		return nil
	}
	w.event(pod, "", v1.EventTypeWarning, v.Reason, v.Message)
	if v.Phase == devices.Failed {
		return &rejectedError{plan.Rejection{Reason: v.Reason, Message: v.Message}}
	}
	return because(v.Reason, errors.New(v.Message))
}

// devicesOf are the devices that a container is started with; it may have none.
func (w *Worker) devicesOf(ctx context.Context, pod *v1.Pod, c *v1.Container) (devices.Grant, error) {
	if len(podspec.ExtendedResources(c)) == 0 {
		return devices.Grant{}, nil
	}
	grant, err := w.cfg.Devices.Grant(ctx, pod, c.Name)
	var refused *devices.StartError
	if errors.As(err, &refused) {
		return grant, because(plan.ReasonCreateConfigError, err)
	}
	return grant, because(plan.ReasonDevicesNotReady, err)
}

// deviceID names a device.
type deviceID struct{ resource, name string }

// lookAtDevices tells of the devices that the pod's containers have, and whether the pod fails by them.
func (w *Worker) lookAtDevices(in *plan.Input) {
	w.failsAt = time.Time{}
	if w.released || !asksForDevices(in.Pod) {
		return
	}
	in.Devices = map[string][]plan.Device{}
	sick := map[deviceID]time.Time{}
	for _, g := range w.cfg.Devices.GrantsOf(w.uid) {
		for _, d := range g.Devices {
			now := plan.Device{Resource: d.Resource, ID: d.Name, Health: v1.ResourceHealthStatus(d.Health), Message: d.Why}
			if id := (deviceID{d.Resource, d.Name}); d.Health != devices.Healthy {
				now.Since = in.Now
				if since, was := w.sick[id]; was {
					now.Since = since
				}
				sick[id] = now.Since
			}
			in.Devices[g.Container] = append(in.Devices[g.Container], now)
		}
	}
	w.sick = sick
	if w.rejection == nil {
		// Once said it holds: a device that recovers while the pod is being stopped does not bring it back.
		w.rejection, w.failsAt = plan.FailedByDevices(in)
		in.Rejection = w.rejection
	}
}

// tellOverridden tells of what a device brings and the container has otherwise by its specification.
func (w *Worker) tellOverridden(pod *v1.Pod, c *v1.Container, names []string) {
	for _, name := range names {
		w.event(pod, c.Name, v1.EventTypeWarning, "DeviceEnvironment",
			fmt.Sprintf("a device of the container brings the variable %s with another value; that of the pod's specification is used", name))
	}
}
