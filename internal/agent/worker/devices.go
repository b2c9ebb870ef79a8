package worker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/pods"
)

// deviceID names a device.
type deviceID struct{ resource, name string }

// deviceWatch is what a worker knows of its pod's devices, and has told of them. It is the loop's own.
type deviceWatch struct {
	devices Devices
	actions Actions
	// sick says since when devices of the pod have not been healthy; failsAt is when it is to be looked again whether the pod fails by that.
	sick    map[deviceID]time.Time
	failsAt time.Time
	// changes and wait make the events.
	changes plan.DeviceTeller
	wait    plan.WaitTeller
	// deadline is the annotation with the pod's deadline for devices as it was seen last; nil: it was not looked at.
	deadline *string
}

// look puts what the containers have into the input. asking is the action that asks for it, if that is under way.
func (d *deviceWatch) look(in *plan.Input, asking *operation) {
	d.failsAt = time.Time{}
	if in.Facts.Has(plan.Released) || !asksForDevices(in.Pod, "") {
		return
	}
	d.checkDeadline(in)
	in.Devices = map[string][]plan.Device{}
	sick := map[deviceID]time.Time{}
	var silent *devices.GrantedDevice // the first of which it is not known yet how a container gets it
	for _, g := range d.devices.GrantsOf(string(in.Pod.UID)) {
		for _, has := range g.Devices {
			if has.Pending && silent == nil {
				silent = &has
			}
			now := plan.Device{Resource: has.Resource, ID: has.Name, Health: v1.ResourceHealthStatus(has.Health), Message: has.Why, Awaited: has.Awaited}
			if id := (deviceID{has.Resource, has.Name}); has.Health != devices.Healthy {
				now.Since = in.Now
				if since, was := d.sick[id]; was {
					now.Since = since
				}
				sick[id] = now.Since
			}
			in.Devices[g.Container] = append(in.Devices[g.Container], now)
		}
	}
	d.sick = sick
	if silent != nil {
		in.Asked = d.awaitAnswer(silent, in.Now, asking)
	}
}

// answerDue is when it is to be looked whether who was asked for the pod's devices has answered; zero: nobody is asked, or it is told already that the pod waits.
func answerDue(asking *operation, now time.Time) time.Time {
	if asking == nil || asking.late {
		return time.Time{}
	}
	if due := asking.begun.Add(plan.EventPatience); due.After(now) {
		return due
	}
	return now.Add(plan.EventPatience) // nobody was asked yet
}

// awaitAnswer says that the pod waits for the answer by which it gets a device, when it has for longer than nobody minds; an event tells it as well.
func (d *deviceWatch) awaitAnswer(device *devices.GrantedDevice, now time.Time, asking *operation) string {
	if asking == nil || now.Before(asking.begun.Add(plan.EventPatience)) {
		return ""
	}
	why := &devices.NotReadyError{Resource: device.Resource, Err: fmt.Errorf("%s was asked for it at %s and has not answered yet", cmp.Or(device.Origin, device.Source), asking.begun.Format(time.RFC3339))}
	if !asking.late {
		asking.late = true
		d.wait.Failed(plan.Event{Type: v1.EventTypeWarning, Reason: why.Reason(), Message: why.Error()}, asking.begun)
	}
	return why.Error()
}

// judge says whether the pod fails by its devices, and notes when it is to be looked again.
func (d *deviceWatch) judge(in *plan.Input) *plan.Verdict {
	if in.Devices == nil {
		return nil
	}
	v, unhealthyAt := plan.FailedByDevices(in)
	var deadline time.Time
	if v == nil {
		v, deadline = plan.FailedByDeadline(in)
	}
	d.failsAt = earlier(unhealthyAt, deadline)
	return v
}

// asked notes what has come of asking for the pod's devices.
func (d *deviceWatch) asked(r result) {
	var why *act.Failed
	switch {
	case errors.As(r.err, &why) && !r.cancelled:
		d.wait.Failed(plan.Event{Type: v1.EventTypeWarning, Reason: why.Reason, Message: why.Error()}, time.Now())
	default: // it has them, is never to have them, or does not want them any more
		d.wait.Over()
	}
}

// tell makes the events about the pod's devices that are due, and returns when to look again for others. st is what the pod's status tells now.
func (d *deviceWatch) tell(in *plan.Input, st *v1.PodStatus) (again time.Time) {
	events, again := d.changes.Tell(&in.Prior, st, in.Now)
	for _, e := range events {
		d.actions.Event(in.Pod, "", e.Type, e.Reason, e.Message)
	}
	if in.Pod.DeletionTimestamp != nil {
		d.wait.Over()
	}
	event, due := d.wait.Tell(in.Now)
	if event != nil {
		d.actions.Event(in.Pod, "", event.Type, event.Reason, event.Message)
	}
	return earlier(again, due)
}

// checkDeadline tells once of an annotation that has no effect: when the pod is first seen on this node, and when it is changed.
func (d *deviceWatch) checkDeadline(in *plan.Input) {
	text := in.Pod.Annotations[plan.DevicesDeadlineAnnotation]
	isNew := d.deadline == nil && in.Prior.StartTime == nil || d.deadline != nil && *d.deadline != text
	d.deadline = &text
	if err := plan.CheckDevicesDeadline(in.Pod); err != nil && isNew && !in.Gone {
		d.actions.Event(in.Pod, "", v1.EventTypeWarning, plan.ReasonInvalidAnnotation, err.Error())
	}
}

// asksForDevices says whether a container of the pod does, or the one of that name.
func asksForDevices(pod *v1.Pod, containerName string) bool {
	for _, c := range pods.Containers(&pod.Spec) {
		if (containerName == "" || c.Name == containerName) && len(podspec.ExtendedResources(c)) > 0 {
			return true
		}
	}
	return false
}
