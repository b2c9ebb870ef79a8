package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// EventPatience is how long something has to last before an event warns of it, where what passes at once concerns nobody: a device that the next pod
// gets when the last one's has been given back, a plugin that is restarted. Statuses tell it at once.
const EventPatience = time.Second

// DeviceTeller makes the events about a pod's devices of what its statuses tell, so that the last event tells what the status does. The zero value is ready.
type DeviceTeller struct {
	// told is the status that the events so far have led to; nil: none was seen.
	told *v1.PodStatus
	// since is when a status first told something else; zero: it does not.
	since time.Time
}

// Tell returns the events that are due when a pod's status becomes now, and when it is to be asked again, unless that is zero. before is what was told last by
// an earlier agent, and counts the first time only.
func (t *DeviceTeller) Tell(before, now *v1.PodStatus, at time.Time) (events []Event, again time.Time) {
	if t.told == nil {
		t.told = before
	}
	events = DeviceEvents(t.told, now)
	if len(events) == 0 {
		t.told, t.since = now, time.Time{}
		return nil, time.Time{}
	}
	if t.since.IsZero() {
		t.since = at
	}
	if due := t.since.Add(EventPatience); at.Before(due) {
		return nil, due
	}
	t.told, t.since = now, time.Time{}
	return events, time.Time{}
}

// WaitTeller makes the events about a pod's wait for its devices. The zero value is ready.
type WaitTeller struct {
	since time.Time
	// news is what the last attempt to get them has met with, and no event has told; nil: nothing.
	news *Event
}

// Failed notes that devices were asked for in vain.
func (t *WaitTeller) Failed(why Event, at time.Time) {
	if t.since.IsZero() {
		t.since = at
	}
	t.news = &why
}

// Over notes that nothing is waited for any more.
func (t *WaitTeller) Over() { *t = WaitTeller{} }

// Tell returns the event that is due, and when it is to be asked again, unless that is zero.
func (t *WaitTeller) Tell(at time.Time) (event *Event, again time.Time) {
	if t.news == nil {
		return nil, time.Time{}
	}
	if due := t.since.Add(EventPatience); at.Before(due) {
		return nil, due
	}
	event, t.news = t.news, nil
	return event, time.Time{}
}
