package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"monopod.dev/monopod/internal/kit/ids"
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
	// on puts what an action works on, of which there is one at a time, into its key; nil: the pod as a whole.
	on func(*Key, *Action)
	// begins: it brings something into being, so it is cancelled when the pod is to end.
	begins bool
	// begun, done and ended note the facts that come of it: when it begins, when it has succeeded, and when it has ended in whatever way.
	begun, done, ended func(Facts, *Action)
}

func ofVolume(k *Key, a *Action)    { k.Volume = a.Volume }
func ofName(k *Key, a *Action)      { k.ContainerName = a.ContainerName }
func ofSandbox(k *Key, a *Action)   { k.SandboxID = a.SandboxID }
func ofContainer(k *Key, a *Action) { k.ContainerID = a.ContainerID }

// verbs has what there is to know of each verb. A new one is a row here and a file of package act.
var verbs = map[Verb]verb{
	GrantDevices: {begins: true, done: func(f Facts, _ *Action) { f.note(Fact{What: Granted}) }},
	MountVolume: {on: ofVolume, begins: true, done: func(f Facts, a *Action) {
		f.note(Fact{What: Mounted, Volume: a.Volume})
	}},
	UpdateVolume:   {on: ofVolume, begins: true},
	CreateSandbox:  {begins: true},
	StopSandbox:    {on: ofSandbox},
	RemoveSandbox:  {on: ofSandbox},
	StartContainer: {on: ofName, begins: true},
	PostStart: {on: ofContainer, begins: true, done: func(f Facts, a *Action) {
		f.note(Fact{What: PostStarted, ContainerID: a.ContainerID})
	}},
	PreStop: {on: ofContainer, begun: stopBegun, ended: func(f Facts, a *Action) {
		f.note(Fact{What: PreStopped, ContainerID: a.ContainerID})
	}},
	StopContainer:   {on: ofContainer, begun: stopBegun},
	RemoveContainer: {on: ofContainer},
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
	of := Fact{What: Stopping, ContainerID: a.ContainerID}
	if by, begun := f[of]; !begun || a.StopBy.Before(by) {
		f[of] = a.StopBy
	}
}

// Key names what an action works on; of two actions with one key only one is under way.
type Key struct {
	Verb Verb
	// At most one of these is set; none: it works on the pod as a whole. A container that is not there yet is known by its name.
	Volume, ContainerName string
	SandboxID             ids.SandboxID
	ContainerID           ids.ContainerID
}

// On is the name or the ID of what the action works on, to be read; empty: the pod as a whole.
func (k Key) On() string {
	return cmp.Or(k.Volume, k.ContainerName, string(k.SandboxID), string(k.ContainerID))
}

// Key returns the action's key.
func (a *Action) Key() Key {
	k := Key{Verb: a.Verb}
	if on := verbs[a.Verb].on; on != nil {
		on(&k, a)
	}
	return k
}

// begins says that the action brings something into being, so that it is cancelled when the pod is to end.
func (k Key) begins() bool { return verbs[k.Verb].begins }

// Verbs are all the kinds of actions, in no order.
func Verbs() []Verb { return slices.Collect(maps.Keys(verbs)) }
