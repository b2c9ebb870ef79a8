package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cdiprobe"
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
	if v.Phase == devices.Failed {
		// The pod's end tells of it.
		return &rejectedError{plan.Rejection{Reason: v.Reason, Message: v.Message}}
	}
	w.event(pod, "", v1.EventTypeWarning, v.Reason, v.Message)
	return &failedBecause{reason: v.Reason, fault: err != nil, err: errors.New(v.Message)}
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

// createContainer creates a container; one with CDI devices, in whichever way it asks for them, only by a runtime that is known not to leave them out.
func (w *Worker) createContainer(ctx context.Context, c *v1.Container, req *criv1.CreateContainerRequest) (id string, err error) {
	var verdict cdiprobe.Verdict
	asks := cdiprobe.Asks(req.Config)
	if asks {
		switch verdict, err = w.cfg.CDI.Ask(ctx, req); {
		case err != nil:
			return "", because(plan.ReasonCreateError, fmt.Errorf("it is not known whether the runtime honours CDI devices: %s", text(err)))
		case verdict.Answer != cdiprobe.Honours:
			return "", because(plan.ReasonDevicesNotReady, errors.New(cdiprobe.Held(c.Name, verdict)))
		}
	}
	created, err := w.cfg.Runtime.CreateContainer(ctx, req)
	if err != nil {
		return "", because(plan.ReasonCreateError, errors.New(text(err)))
	}
	if asks && w.cfg.Runtime.Generation() != verdict.Generation {
		// Another one may have created it than the one that was asked. It is made anew: one that was not started is removed before.
		return "", because(plan.ReasonCreateError, errors.New("the container runtime was restarted while the container was created"))
	}
	return created.ContainerId, nil
}

// noteRuntime lets what waited for another runtime be tried again at once when there is one.
func (w *Worker) noteRuntime() {
	now := w.cfg.Runtime.Generation()
	if now == w.runtime {
		return
	}
	w.runtime = now
	for k, f := range w.failures {
		if k.Verb == plan.StartContainer && f.Reason == plan.ReasonDevicesNotReady {
			delete(w.failures, k)
		}
	}
}

// deviceID names a device.
type deviceID struct{ resource, name string }

// lookAtDevices tells of the devices that the pod's containers have, and whether the pod fails by them.
func (w *Worker) lookAtDevices(in *plan.Input) {
	w.failsAt = time.Time{}
	if w.released || !asksForDevices(in.Pod) {
		return
	}
	w.checkDeadline(in)
	in.Devices = map[string][]plan.Device{}
	sick := map[deviceID]time.Time{}
	for _, g := range w.cfg.Devices.GrantsOf(w.uid) {
		for _, d := range g.Devices {
			now := plan.Device{Resource: d.Resource, ID: d.Name, Health: v1.ResourceHealthStatus(d.Health), Message: d.Why, Awaited: d.Awaited}
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
		var unhealthyAt, deadline time.Time
		w.rejection, unhealthyAt = plan.FailedByDevices(in)
		if w.rejection == nil {
			w.rejection, deadline = plan.FailedByDeadline(in)
		}
		w.failsAt = earlier(unhealthyAt, deadline)
		in.Rejection = w.rejection
	}
}

// checkDeadline tells once of an annotation that has no effect: when the pod is first seen on this node, and when it is changed.
func (w *Worker) checkDeadline(in *plan.Input) {
	text := in.Pod.Annotations[plan.DevicesDeadlineAnnotation]
	isNew := w.deadline == nil && in.Prior.StartTime == nil || w.deadline != nil && *w.deadline != text
	w.deadline = &text
	if err := plan.CheckDevicesDeadline(in.Pod); err != nil && isNew && !in.Gone {
		w.event(in.Pod, "", v1.EventTypeWarning, plan.ReasonInvalidAnnotation, err.Error())
	}
}

// tellOverridden tells of what a device brings and the container has otherwise by its specification.
func (w *Worker) tellOverridden(pod *v1.Pod, c *v1.Container, names []string) {
	for _, name := range names {
		w.event(pod, c.Name, v1.EventTypeWarning, "DeviceEnvironment",
			fmt.Sprintf("a device of the container brings the variable %s with another value; that of the pod's specification is used", name))
	}
}
