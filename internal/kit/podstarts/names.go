package podstarts

// The names of steps that are neither verbs of the agent's plan nor calls of CRI.
const (
	// Post is the way of the request that makes the pod to its storage: who asks, may they, what do they ask for, what is to be added.
	Post = "POST"
	// Store is until the pod has been found valid and is on the API server's disk.
	Store = "store"
	// Bind is the request that gives the pod its node, until that is on the disk.
	Bind = "bind"
	// Seen is when the agent has heard of the pod.
	Seen = "seen by the agent"
	// InspectImage is the question whether an image is there, Configure what a container's configuration refers to.
	InspectImage = "image there?"
	Configure    = "configuration"
	// Runs is when the runtime has said that a container runs.
	Runs = "runs"
	// FirstLog is the first line of a container's log.
	FirstLog = "first log line"
)

// The calls of CRI that are steps within an action.
const (
	CallRunSandbox      = "CRI RunPodSandbox"
	CallPullImage       = "CRI PullImage"
	CallCreateContainer = "CRI CreateContainer"
	CallStartContainer  = "CRI StartContainer"
)

// Told is how far a status says that the pod is: its phase, or that it is ready.
type Told int

// What statuses tell.
const (
	Pending Told = iota
	Running
	Ready
	Over
)

// SetName is the name of the moment at which a status was handed to who writes it, WriteName that of its way to the API server.
func (t Told) SetName() string {
	return [...]string{"status set: Pending", "status set: Running", "status set: Ready", "status set: over"}[t]
}

// WriteName is the name of the status's way to the API server, until that has it.
func (t Told) WriteName() string {
	return [...]string{"status written: Pending", "status written: Running", "status written: Ready", "status written: over"}[t]
}

// Part says that a step of this name is a part of an action for the same container, which is a step too.
func Part(name string) bool {
	switch name {
	case InspectImage, Configure, CallRunSandbox, CallPullImage, CallCreateContainer, CallStartContainer:
		return true
	}
	return false
}
