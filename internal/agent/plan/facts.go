package plan

import (
	"maps"
	"time"
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
	// On is the volume's name or the container's ID; empty: the fact is of the pod.
	On string
}

// ofContainer says that it is a fact of a container.
func (f Fact) ofContainer() bool { return f.On != "" && f.What != Mounted }

// Facts are the effects of actions that neither the runtime nor the API server can be asked for, each with the time that belongs to it. They are the
// worker's memory: an agent that has been started again has none, so what it cannot tell is done again (docs/LIFECYCLE.md says what that may be).
type Facts map[Fact]time.Time

func (f Facts) note(what Fact) { f[what] = time.Time{} }

// Has says that a fact of the pod holds.
func (f Facts) Has(what What) bool { return f.of(what, "") }

// Set makes a fact of the pod hold, or not.
func (f Facts) Set(what What, holds bool) {
	if holds {
		f.note(Fact{What: what})
	} else {
		delete(f, Fact{What: what})
	}
}

func (f Facts) of(what What, on string) bool {
	_, holds := f[Fact{what, on}]
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
	here := o.ids()
	maps.DeleteFunc(f, func(fact Fact, _ time.Time) bool { return fact.ofContainer() && !here[fact.On] })
}

// ForgetFailures drops the failures of actions on what is gone.
func ForgetFailures(failures map[Key]Failure, o *Observed) {
	here := o.ids()
	maps.DeleteFunc(failures, func(k Key, _ Failure) bool { return k.ByID() && !here[k.On] })
}

// ids are those of all sandboxes and containers.
func (o *Observed) ids() map[string]bool {
	here := map[string]bool{}
	for i := range o.Sandboxes {
		here[o.Sandboxes[i].ID] = true
	}
	for i := range o.Containers {
		here[o.Containers[i].ID] = true
	}
	return here
}
