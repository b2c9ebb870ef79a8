package plan

import (
	"maps"
	"slices"
	"time"
)

// Verb is the kind of an action.
type Verb string

// The verbs. Each action is idempotent: a worker that does not know whether one was carried out repeats it.
const (
	// GrantDevices has the pod admitted with the devices of all its containers.
	GrantDevices Verb = "GrantDevices"
	// MountVolume makes a volume of the pod on the host. Each is made by itself: none waits for another one, or is made again because another one failed.
	MountVolume Verb = "MountVolume"
	// UpdateVolume brings a volume up to date with what it shows.
	UpdateVolume Verb = "UpdateVolume"
	// CreateSandbox makes the pod's sandbox, after it has stopped those that it replaces.
	CreateSandbox Verb = "CreateSandbox"
	StopSandbox   Verb = "StopSandbox"
	// RemoveSandbox stops and removes a sandbox with all its containers.
	RemoveSandbox Verb = "RemoveSandbox"
	// StartContainer gets the image, creates the container and starts it.
	StartContainer Verb = "StartContainer"
	// PostStart runs a container's hook of this name, after it was started.
	PostStart Verb = "PostStart"
	// PreStop runs a container's hook of this name, before it is stopped. However that ends, it is not run again.
	PreStop       Verb = "PreStop"
	StopContainer Verb = "StopContainer"
	// RemoveContainer removes one that is not running.
	RemoveContainer Verb = "RemoveContainer"
	// Release gives back the pod's volumes and devices; Final also removes its directories and logs.
	Release Verb = "Release"
	// DeleteObject tells the API server that the pod is gone, once its last status was written.
	DeleteObject Verb = "DeleteObject"
)

// verb is what is to be known of a kind of action beside how it is carried out.
type verb struct {
	// on is what an action works on, of which there is one at a time; nil: the pod as a whole.
	on func(*Action) string
	// byID: on is the ID of a container or a sandbox, with which its failures are forgotten.
	byID bool
	// begins: it brings something into being, so it is cancelled when the pod is to end.
	begins bool
	// begun, done and ended note the facts that come of it: when it begins, when it has succeeded, and when it has ended in whatever way.
	begun, done, ended func(Facts, *Action)
}

func container(a *Action) string { return a.Container }
func volume(a *Action) string    { return a.Volume }
func id(a *Action) string        { return a.ID }

// verbs has what there is to know of each verb. A new one is a row here and a file of package act.
var verbs = map[Verb]verb{
	GrantDevices: {begins: true, done: func(f Facts, _ *Action) { f.note(Fact{What: Granted}) }},
	MountVolume: {on: volume, begins: true, done: func(f Facts, a *Action) {
		f.note(Fact{Mounted, a.Volume})
	}},
	UpdateVolume:   {on: volume, begins: true},
	CreateSandbox:  {begins: true},
	StopSandbox:    {on: id, byID: true},
	RemoveSandbox:  {on: id, byID: true},
	StartContainer: {on: container, begins: true},
	PostStart: {on: id, byID: true, begins: true, done: func(f Facts, a *Action) {
		f.note(Fact{PostStarted, a.ID})
	}},
	PreStop: {on: id, byID: true, begun: stopBegun, ended: func(f Facts, a *Action) {
		f.note(Fact{PreStopped, a.ID})
	}},
	StopContainer:   {on: id, byID: true, begun: stopBegun},
	RemoveContainer: {on: id, byID: true},
	Release: {done: func(f Facts, a *Action) {
		f.note(Fact{What: Released})
		if a.Final {
			f.note(Fact{What: Removed})
		}
		delete(f, Fact{What: Granted})
		maps.DeleteFunc(f, func(fact Fact, _ time.Time) bool { return fact.What == Mounted })
	}},
	DeleteObject: {done: func(f Facts, _ *Action) { f.note(Fact{What: Deleted}) }},
}

// stopBegun notes by when the container is to have ended; a time that was set is only shortened.
func stopBegun(f Facts, a *Action) {
	of := Fact{Stopping, a.ID}
	if by, begun := f[of]; !begun || a.StopBy.Before(by) {
		f[of] = a.StopBy
	}
}

// Key names what an action works on; of two actions with one key only one is under way.
type Key struct {
	Verb Verb
	On   string
}

// Key returns the action's key.
func (a *Action) Key() Key {
	k := Key{Verb: a.Verb}
	if on := verbs[a.Verb].on; on != nil {
		k.On = on(a)
	}
	return k
}

// begins says that the action brings something into being, so that it is cancelled when the pod is to end.
func (k Key) begins() bool { return verbs[k.Verb].begins }

// ByID says that the key names a container or a sandbox by its ID.
func (k Key) ByID() bool { return verbs[k.Verb].byID }

// Verbs are all the kinds of actions, in no order.
func Verbs() []Verb { return slices.Collect(maps.Keys(verbs)) }
