package plan

import (
	"maps"
	"time"

	"monopod.dev/monopod/internal/kit/ids"
)

// What kind of fact it is.
type What string

// The kinds of facts: of the pod as a whole, then of a volume by its name, then of a container by its ID.
const (
	// Granted: the pod has been given all its devices.
	Granted What = "Granted"
	// Released: volumes and devices were given back. Removed: the pod's directories and logs are gone as well.
	Released What = "Released"
	Removed  What = "Removed"
	// Deleted: the API server was told that the pod is gone. A finalizer may keep the object.
	Deleted What = "Deleted"

	// Mounted: the volume was made on the host.
	Mounted What = "Mounted"

	// PostStarted: the container's postStart hook has succeeded.
	PostStarted What = "PostStarted"
	// Stopping: the container is being stopped. Its time is by when it is to have ended.
	Stopping What = "Stopping"
	// PreStopped: the container's preStop hook has ended, in whatever way.
	PreStopped What = "PreStopped"
)

// Fact is something that has become true of the pod, or of one of its volumes or containers.
type Fact struct {
	What What
	// Volume is the name of the volume that it is of, ContainerID the container; neither: the fact is of the pod.
	Volume      string
	ContainerID ids.ContainerID
}

// Facts are the effects of actions that neither the runtime nor the API server can be asked for, each with the time that belongs to it. They are the
// worker's memory: an agent that has been started again has none, so what it cannot tell is done again (docs/LIFECYCLE.md says what that may be).
type Facts map[Fact]time.Time

func (f Facts) note(what Fact) { f[what] = time.Time{} }

// Has says that a fact of the pod holds.
func (f Facts) Has(what What) bool { return f.has(Fact{What: what}) }

// Set makes a fact of the pod hold, or not.
func (f Facts) Set(what What, holds bool) {
	if holds {
		f.note(Fact{What: what})
	} else {
		delete(f, Fact{What: what})
	}
}

func (f Facts) ofVolume(what What, name string) bool { return f.has(Fact{What: what, Volume: name}) }

func (f Facts) ofContainer(what What, id ids.ContainerID) bool {
	return f.has(Fact{What: what, ContainerID: id})
}

func (f Facts) has(fact Fact) bool {
	_, holds := f[fact]
	return holds
}

// Begun notes what comes of an action that begins.
func (f Facts) Begun(a *Action) {
	if note := verbs[a.Verb].begun; note != nil {
		note(f, a)
	}
}

// Ended notes what comes of an action that has ended.
func (f Facts) Ended(a *Action, succeeded bool) {
	v := verbs[a.Verb]
	if v.ended != nil {
		v.ended(f, a)
	}
	if succeeded && v.done != nil {
		v.done(f, a)
	}
}

// Forget drops the facts of containers that are not among those observed.
func (f Facts) Forget(o *Observed) {
	_, containers := o.IDs()
	maps.DeleteFunc(f, func(fact Fact, _ time.Time) bool { return fact.ContainerID != "" && !containers[fact.ContainerID] })
}

// ForgetFailures drops the failures of actions on what is gone.
func ForgetFailures(failures map[Key]Failure, o *Observed) {
	sandboxes, containers := o.IDs()
	maps.DeleteFunc(failures, func(k Key, _ Failure) bool {
		return k.SandboxID != "" && !sandboxes[k.SandboxID] || k.ContainerID != "" && !containers[k.ContainerID]
	})
}

// IDs are those of all sandboxes and containers.
func (o *Observed) IDs() (sandboxes map[ids.SandboxID]bool, containers map[ids.ContainerID]bool) {
	sandboxes, containers = map[ids.SandboxID]bool{}, map[ids.ContainerID]bool{}
	for i := range o.Sandboxes {
		sandboxes[o.Sandboxes[i].ID] = true
	}
	for i := range o.Containers {
		containers[o.Containers[i].ID] = true
	}
	return sandboxes, containers
}
