package protocol

import "time"

// DrainRequest asks for the end of all pods.
type DrainRequest struct {
	// Grace is how long they have, CriticalGrace the last part of it, for critical pods; nil: as the node is configured.
	Grace, CriticalGrace *time.Duration
}

// Drain is how far a node is that shuts down.
type Drain struct {
	// Active: the node shuts down, or has: it takes no pods.
	Active bool `json:"active"`
	// Joined: it did so before it was asked to, with the time that it was given then.
	Joined bool `json:"joined,omitempty"`
	// Finished: all pods have ended, or the time is over and those of Pods have not.
	Finished bool `json:"finished"`
	// Begun is when it has begun, Until by when the time is over.
	Begun *time.Time `json:"begun,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// Turn of Turns is whose turn it is: pods of low priority end first.
	Turn  int `json:"turn,omitempty"`
	Turns int `json:"turns,omitempty"`
	// Known: the node knows which pods it has. A node that is being started does not, yet.
	Known bool `json:"known"`
	// Pods are those that have not ended.
	Pods []DrainPod `json:"pods"`
}

// DrainPod is a pod that has not ended.
type DrainPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Priority  int32  `json:"priority"`
	// Ended: nothing of it runs, but the API server was not told yet.
	Ended bool `json:"ended,omitempty"`
}
