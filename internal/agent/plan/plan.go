package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Input is everything that a decision depends on.
type Input struct {
	// Pod is the newest version of the object. Its status is not looked at: see Prior.
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
	// Granted: the pod needs no devices, or has been given all of them.
	Granted bool
	// Devices are the devices that the containers have been granted, by the container's name; none of a container: it has none, or they
	// have been given back.
	Devices map[string][]Device
	// Unsupported names the fields of the specification that this agent does not honour; a pod that has any fails at once, unless it
	// has begun.
	Unsupported []string
	// Rejection: the pod is never to have what it asks for of the node, such as devices; it fails at once. Nil: that was not said.
	Rejection *Rejection
	// PortsTaken: another pod has a port of the host that this one asks for; it fails at once.
	PortsTaken bool
	// Released: volumes and devices were given back. Removed: the pod's directories and logs are gone as well.
	Released, Removed bool
	// Deleted: the API server was told that the pod is gone. A finalizer may keep the object.
	Deleted bool
	// VolumesStale: what the pod's volumes were written from has changed.
	VolumesStale bool
	// Hashes are the hashes of the containers' present specifications, by container name.
	Hashes map[string]string

	// RuntimeName is the scheme of container IDs in the status.
	RuntimeName string
	// HostIPs are the node's addresses.
	HostIPs []string
	Now     time.Time
}

// Rejection is why a pod is never to run here, as its status tells it.
type Rejection struct{ Reason, Message string }

// Verb is the kind of an action.
type Verb string

// The verbs. Each action is idempotent: a worker that does not know whether one was carried out repeats it.
const (
	// GrantDevices has the pod admitted with the devices of all its containers.
	GrantDevices Verb = "GrantDevices"
	// CreateSandbox prepares the pod's directories and volumes and makes its sandbox, after it has stopped those it
	// replaces.
	CreateSandbox Verb = "CreateSandbox"
	// UpdateVolumes brings volumes that are written from objects up to date.
	UpdateVolumes Verb = "UpdateVolumes"
	StopSandbox   Verb = "StopSandbox"
	// RemoveSandbox stops and removes a sandbox with all its containers.
	RemoveSandbox Verb = "RemoveSandbox"
	// StartContainer gets the image, creates the container and starts it.
	StartContainer Verb = "StartContainer"
	StopContainer  Verb = "StopContainer"
	// RemoveContainer removes one that is not running.
	RemoveContainer Verb = "RemoveContainer"
	// Release gives back the pod's volumes and devices; Final also removes its directories and logs.
	Release Verb = "Release"
	// DeleteObject tells the API server that the pod is gone, once its last status was written.
	DeleteObject Verb = "DeleteObject"
)

// Action is one thing to do. Which fields are used depends on the verb.
type Action struct {
	Verb Verb
	// ID is the sandbox's or container's.
	ID string
	// Container is the name of the container.
	Container string
	// Attempt is the sandbox's attempt, or the container's restart count.
	Attempt uint32
	// Step is the back-off step that the new container is born with.
	Step int
	// Sandbox is where the container is created.
	Sandbox *Sandbox
	// Replaces are the sandboxes that a new one takes the place of.
	Replaces []string
	// StopBy is when a container that is stopped gets killed.
	StopBy time.Time
	// Why is the message of the event that tells of a stop; empty: the pod ends.
	Why string
	// Final: the pod is deleted, so its directories and logs go too.
	Final bool
}

// Key names what an action works on; of two actions with one key only one is under way.
type Key struct {
	Verb Verb
	On   string
}

// Key returns the action's key.
func (a Action) Key() Key {
	switch a.Verb {
	case StartContainer:
		return Key{a.Verb, a.Container}
	case StopSandbox, RemoveSandbox, StopContainer, RemoveContainer:
		return Key{a.Verb, a.ID}
	default:
		return Key{Verb: a.Verb}
	}
}

// begins says that the action brings something into being, so that it is cancelled when the pod is to end.
func (k Key) begins() bool {
	switch k.Verb {
	case GrantDevices, CreateSandbox, UpdateVolumes, StartContainer:
		return true
	}
	return false
}

// Ongoing is an action under way.
type Ongoing struct {
	// StopBy is the deadline that a StopContainer was begun with.
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
	case d.a.verdict.final():
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
	}
	d.res.Actions = append(d.res.Actions, a)
	return true
}

func (d *decision) wake(at time.Time) {
	if d.res.Wake.IsZero() || at.Before(d.res.Wake) {
		d.res.Wake = at
	}
}

// halt cancels what brings things into being and stops what runs. It says whether all has come to rest.
func (d *decision) halt(stopBy time.Time, why string) (rest bool) {
	rest = true
	for k := range d.in.Ongoing {
		if k.begins() {
			d.res.Cancel = append(d.res.Cancel, k)
			rest = false
		}
	}
	for i := range d.in.Observed.Containers {
		if c := &d.in.Observed.Containers[i]; c.alive() {
			d.stop(c, stopBy, why)
			rest = false
		}
	}
	return rest
}

func (d *decision) stop(c *Container, by time.Time, why string) {
	d.do(Action{Verb: StopContainer, ID: c.ID, Container: c.Name, StopBy: by, Why: why})
}

// terminate ends a pod that is deleted.
func (d *decision) terminate() {
	if !d.halt(d.in.StopBy, "") {
		return
	}
	removed := map[string]bool{}
	for _, s := range d.in.Observed.Sandboxes {
		removed[s.ID] = true
		d.do(Action{Verb: RemoveSandbox, ID: s.ID})
	}
	for _, c := range d.in.Observed.Containers {
		if !removed[c.SandboxID] {
			d.do(Action{Verb: RemoveContainer, ID: c.ID, Container: c.Name})
		}
	}
	switch {
	case len(d.in.Observed.Sandboxes)+len(d.in.Observed.Containers) > 0:
	case !d.in.Removed:
		d.do(Action{Verb: Release, Final: true})
	case d.in.Gone:
		// The answer to the deletion may still be on its way.
		d.res.Done = len(d.in.Ongoing) == 0
	case !d.in.Deleted:
		d.do(Action{Verb: DeleteObject})
	}
}

// finish brings a pod to rest that will not run again, and keeps its last containers for their logs.
func (d *decision) finish() {
	by := d.in.Now.Add(grace(d.in.Pod))
	if d.a.verdict == deadlineExceeded {
		by = d.a.deadline.Add(grace(d.in.Pod))
	}
	if !d.halt(by, "") {
		return
	}
	d.prune()
	for _, s := range d.in.Observed.Sandboxes {
		if s.Ready {
			d.do(Action{Verb: StopSandbox, ID: s.ID})
		}
	}
	if !d.in.Released {
		d.do(Action{Verb: Release})
	}
}

func grace(pod *v1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 30 * time.Second
}
