package report

import "reflect"

// EventType is what an Event tells.
type EventType string

const (
	// Listed: the device was there when the watch began.
	Listed EventType = "listed"
	// Synced ends what was there when the watch began; what follows are changes.
	Synced EventType = "synced"
	// Added, Changed and Removed: a device has come, is another one in some respect, or has gone. Removed tells how it was.
	Added   EventType = "added"
	Changed EventType = "changed"
	Removed EventType = "removed"
	// Arisen and Solved: a problem has come, or has gone.
	Arisen EventType = "problem"
	Solved EventType = "solved"
)

// Event is one line of a watch.
type Event struct {
	Type EventType `json:"type"`
	// Device is set with listed, added, changed and removed.
	Device *Device `json:"device,omitempty"`
	// Problem is set with problem and solved.
	Problem *Problem `json:"problem,omitempty"`
}

// Begin are the events of a watch that begins with a list.
func Begin(l List) []Event {
	events := make([]Event, 0, len(l.Devices)+len(l.Problems)+1)
	for i := range l.Devices {
		events = append(events, Event{Type: Listed, Device: &l.Devices[i]})
	}
	for i := range l.Problems {
		events = append(events, Event{Type: Arisen, Problem: &l.Problems[i]})
	}
	return append(events, Event{Type: Synced})
}

// Diff are the events that lead from one list to the next: first what has gone, then what has come or changed, then problems.
func Diff(last, next List) (events []Event) {
	had := make(map[key]*Device, len(last.Devices))
	for i := range last.Devices {
		d := &last.Devices[i]
		had[key{d.Resource, d.Name}] = d
	}
	var came []Event
	stays := make(map[key]bool, len(next.Devices))
	for i := range next.Devices {
		d := &next.Devices[i]
		k := key{d.Resource, d.Name}
		stays[k] = true
		switch old := had[k]; {
		case old == nil:
			came = append(came, Event{Type: Added, Device: d})
		case !reflect.DeepEqual(*old, *d):
			came = append(came, Event{Type: Changed, Device: d})
		}
	}
	for i := range last.Devices {
		if d := &last.Devices[i]; !stays[key{d.Resource, d.Name}] {
			events = append(events, Event{Type: Removed, Device: d})
		}
	}
	events = append(events, came...)
	events = append(events, missingFrom(last.Problems, next.Problems, Solved)...)
	return append(events, missingFrom(next.Problems, last.Problems, Arisen)...)
}

// missingFrom are events about the problems that others do not have.
func missingFrom(problems, others []Problem, as EventType) (events []Event) {
	known := make(map[string]bool, len(others))
	for _, p := range others {
		known[p.String()] = true
	}
	for i := range problems {
		if !known[problems[i].String()] {
			events = append(events, Event{Type: as, Problem: &problems[i]})
		}
	}
	return events
}
