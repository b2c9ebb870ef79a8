package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/ids"
)

// Input is everything that a decision depends on.
type Input struct {
	// Pod is the newest version of the object, with the resources that it was given. Its status is not looked at: see Prior.
	Pod *v1.Pod
	// Gone: the API server no longer has the pod. It is stopped, cleaned up, and nothing more is told about it.
	Gone bool
	// StopBy is by when a pod that is deleted or gone shall have ended; containers that still run then are killed.
	StopBy time.Time
	// Prior is the last status that is known: the one computed last, or after a start of the agent the API server's.
	Prior v1.PodStatus

	Observed Observed
	// Ongoing are the actions under way, Failures the last failures of those that did not succeed since.
	Ongoing  map[Key]Ongoing
	Failures map[Key]Failure
	// Facts are what has come of actions.
	Facts Facts
	// Devices are the devices that the containers have been granted, by the container's name; none of a container: it has none, or they
	// have been given back.
	Devices map[string][]Device
	// Asked says of whom an answer has been awaited for a while without which the pod has no devices; empty: of nobody.
	Asked string
	// Verdict is how the pod is to end, for a reason that is not in its containers; nil: there is none.
	Verdict *Verdict
	// Probed is what the probes of the containers have found, by container ID.
	Probed map[ids.ContainerID]Probed
	// Stale are the volumes of which what they show has changed, by their names.
	Stale map[string]bool
	// Hashes are the hashes of the containers' present specifications, by container name.
	Hashes map[string]string

	// RuntimeName is the scheme of container IDs in the status.
	RuntimeName string
	// HostIPs are the node's addresses.
	HostIPs []string
	Now     time.Time
}

// Action is one thing to do. Which fields are used depends on the verb.
type Action struct {
	Verb Verb
	// SandboxID and ContainerID are of what is there: the one of the two that the verb is about.
	SandboxID   ids.SandboxID
	ContainerID ids.ContainerID
	// ContainerName is the name of the container, Volume of the volume.
	ContainerName, Volume string
	// Attempt is the sandbox's attempt, or the container's restart count.
	Attempt uint32
	// Step is the back-off step that the new container is born with.
	Step int
	// Sandbox is where the container is, or is created.
	Sandbox *Sandbox
	// Target is the ID of the container whose processes an ephemeral container is to see; empty: none, or it does not run.
	Target ids.ContainerID
	// Replaces are the sandboxes that a new one takes the place of.
	Replaces []ids.SandboxID
	// StopBy is when a container that is stopped gets killed.
	StopBy time.Time
	// Why is the message of the event that tells of a stop; empty: the pod ends. Told: an event has told of this stop.
	Why  string
	Told bool
	// Again: it was tried before, and failed when it had the images.
	Again bool
	// Final: the pod is deleted, so its directories and logs go too.
	Final bool
}

// Ongoing is an action under way.
type Ongoing struct {
	// StopBy is by when a container is to have ended that is being stopped.
	StopBy time.Time
}

// Failure is the last failure of an action.
type Failure struct {
	// Reason is the waiting reason that the container's status shows, such as ErrImagePull.
	Reason string
	// Image is the image that was not to be had; empty: it is not about an image.
	Image   string
	Message string
	// Fault: of what the pod waits for, such as devices, it is not known whether it is there, so nobody tells when it is.
	Fault bool
	// Lasts: the same would come of it until an object that the pod refers to changes, of which the worker is told, or the pod itself.
	Lasts bool
	At    time.Time
	// Count is the number of failures in a row, from 1.
	Count int
}

// Result is a decision.
type Result struct {
	// Actions can all be carried out now, side by side.
	Actions []Action
	// Cancel names actions under way that are no longer wanted.
	Cancel []Key
	// Wake is when to decide again even if nothing happens; zero: not before something happens.
	Wake time.Time
	// Done: the pod is gone, with everything that it had. The worker ends.
	Done bool
}

// Plan decides what to do now.
//
//	               deleted or gone
//	run ----------------------------------> terminate: cancel, stop, remove, release, delete the object
//	 |                                           ^
//	 | all have ended for good, the deadline     | deleted or gone
//	 | has passed, or a field is not honoured    |
//	 +------------------------------> finish: stop, release; the dead containers stay for their logs
func Plan(in Input) Result {
	d := decision{in: &in, a: assess(&in)}
	switch {
	case in.terminating():
		d.terminate()
	case d.a.verdict != nil:
		d.finish()
	default:
		d.run()
	}
	return d.res
}

func (in *Input) terminating() bool { return in.Gone || in.Pod.DeletionTimestamp != nil }

// decision gathers a Result.
type decision struct {
	in  *Input
	a   assessment
	res Result
}

// do asks for an action unless it is under way or waits after a failure; it says whether the action is or was begun.
func (d *decision) do(a Action) bool {
	key := a.Key()
	if on, ok := d.in.Ongoing[key]; ok {
		// A more forceful stop overtakes the one under way.
		if a.Verb != StopContainer || !a.StopBy.Before(on.StopBy) {
			return true
		}
	}
	if f, ok := d.in.Failures[key]; ok {
		if at := f.RetryAt(); d.in.Now.Before(at) {
			d.wake(at)
			return false
		}
		a.Again = f.Image == ""
	}
	d.res.Actions = append(d.res.Actions, a)
	return true
}

func (d *decision) cancel(k Key) {
	if _, under := d.in.Ongoing[k]; under {
		d.res.Cancel = append(d.res.Cancel, k)
	}
}

func (d *decision) wake(at time.Time) {
	if d.res.Wake.IsZero() || at.Before(d.res.Wake) {
		d.res.Wake = at
	}
}

// terminate ends a pod that is deleted.
func (d *decision) terminate() {
	if !d.halt(d.in.StopBy, "") {
		return
	}
	removed := map[ids.SandboxID]bool{}
	for _, s := range d.in.Observed.Sandboxes {
		removed[s.ID] = true
		d.do(Action{Verb: RemoveSandbox, SandboxID: s.ID})
	}
	for _, c := range d.in.Observed.Containers {
		if !removed[c.SandboxID] {
			d.do(Action{Verb: RemoveContainer, ContainerID: c.ID, ContainerName: c.Name})
		}
	}
	switch {
	case len(d.in.Observed.Sandboxes)+len(d.in.Observed.Containers) > 0:
	case !d.in.Facts.Has(Removed):
		d.do(Action{Verb: Release, Final: true})
	case d.in.Gone:
		// The answer to the deletion may still be on its way.
		d.res.Done = len(d.in.Ongoing) == 0
	case !d.in.Facts.Has(Deleted):
		d.do(Action{Verb: DeleteObject})
	}
}

// finish brings a pod to rest that will not run again, and keeps its last containers for their logs.
func (d *decision) finish() {
	if !d.halt(d.a.verdict.stopBy(d.in), "") {
		return
	}
	d.prune()
	for _, s := range d.in.Observed.Sandboxes {
		if s.Ready {
			d.do(Action{Verb: StopSandbox, SandboxID: s.ID})
		}
	}
	if !d.in.Facts.Has(Released) {
		d.do(Action{Verb: Release})
	}
}
