package worker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/devices"
)

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

// lookAtDevices tells of the devices that the pod's containers have.
func (w *Worker) lookAtDevices(in *plan.Input) {
	w.failsAt = time.Time{}
	if w.facts.Has(plan.Released) || !asksForDevices(in.Pod, "") {
		return
	}
	w.checkDeadline(in)
	in.Devices = map[string][]plan.Device{}
	sick := map[deviceID]time.Time{}
	var silent *devices.GrantedDevice // the first of which it is not known yet how a container gets it
	for _, g := range w.cfg.Devices.GrantsOf(w.uid) {
		for _, d := range g.Devices {
			if d.Pending && silent == nil {
				silent = &d
			}
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
	if silent != nil {
		in.Asked = w.awaitAnswer(silent, in.Now)
	}
}

// answerDue is when it is to be looked whether who was asked for the pod's devices has answered; zero: nobody is asked, or it is told already that the pod waits.
func (w *Worker) answerDue(now time.Time) time.Time {
	op := w.ongoing[plan.Key{Verb: plan.GrantDevices}]
	if op == nil || op.late {
		return time.Time{}
	}
	if due := op.begun.Add(plan.EventPatience); due.After(now) {
		return due
	}
	return now.Add(plan.EventPatience) // nobody was asked yet
}

// awaitAnswer says that the pod waits for the answer by which it gets a device, when it has for longer than nobody minds; an event tells it as well.
func (w *Worker) awaitAnswer(d *devices.GrantedDevice, now time.Time) string {
	op := w.ongoing[plan.Key{Verb: plan.GrantDevices}]
	if op == nil || now.Before(op.begun.Add(plan.EventPatience)) {
		return ""
	}
	why := &devices.NotReadyError{Resource: d.Resource, Err: fmt.Errorf("%s was asked for it at %s and has not answered yet", cmp.Or(d.Origin, d.Source), op.begun.Format(time.RFC3339))}
	if !op.late {
		op.late = true
		w.tellWait.Failed(plan.Event{Type: v1.EventTypeWarning, Reason: why.Reason(), Message: why.Error()}, op.begun)
	}
	return why.Error()
}

// judgeDevices says whether the pod fails by its devices, and notes when it is to be looked again.
func (w *Worker) judgeDevices(in *plan.Input) *plan.Verdict {
	if in.Devices == nil {
		return nil
	}
	v, unhealthyAt := plan.FailedByDevices(in)
	var deadline time.Time
	if v == nil {
		v, deadline = plan.FailedByDeadline(in)
	}
	w.failsAt = earlier(unhealthyAt, deadline)
	return v
}

// noteWait notes what has come of asking for the pod's devices.
func (w *Worker) noteWait(r result) {
	var why *act.Failed
	switch {
	case errors.As(r.err, &why) && !r.cancelled:
		w.tellWait.Failed(plan.Event{Type: v1.EventTypeWarning, Reason: why.Reason, Message: why.Error()}, time.Now())
	default: // it has them, is never to have them, or does not want them any more
		w.tellWait.Over()
	}
}

// tellOfDevices makes the events about the pod's devices that are due, and returns when to look again for others.
func (w *Worker) tellOfDevices(pod *v1.Pod, in *plan.Input) (again time.Time) {
	events, again := w.tellDevices.Tell(&in.Prior, w.prior, in.Now)
	for _, e := range events {
		w.act.Event(pod, "", e.Type, e.Reason, e.Message)
	}
	if pod.DeletionTimestamp != nil {
		w.tellWait.Over()
	}
	event, due := w.tellWait.Tell(in.Now)
	if event != nil {
		w.act.Event(pod, "", event.Type, event.Reason, event.Message)
	}
	return earlier(again, due)
}

// checkDeadline tells once of an annotation that has no effect: when the pod is first seen on this node, and when it is changed.
func (w *Worker) checkDeadline(in *plan.Input) {
	text := in.Pod.Annotations[plan.DevicesDeadlineAnnotation]
	isNew := w.deadline == nil && in.Prior.StartTime == nil || w.deadline != nil && *w.deadline != text
	w.deadline = &text
	if err := plan.CheckDevicesDeadline(in.Pod); err != nil && isNew && !in.Gone {
		w.act.Event(in.Pod, "", v1.EventTypeWarning, plan.ReasonInvalidAnnotation, err.Error())
	}
}
