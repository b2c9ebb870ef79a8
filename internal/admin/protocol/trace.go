package protocol

import "time"

// Trace is the time line of a pod's start. What a process does not know, because another one runs the role that does, is not in it, and NotAsked says so.
type Trace struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Steps are in the order in which they began.
	Steps []Step `json:"steps"`
	// Dropped is how many steps came when no more were kept.
	Dropped  int       `json:"dropped,omitempty"`
	NotAsked []Unknown `json:"notAsked"`
}

// Step is something that was done for a pod, or that happened to it.
type Step struct {
	Step string `json:"step"`
	// Container is the container, or the volume, that it was for; empty: it was for the pod as a whole.
	Container string `json:"container,omitempty"`
	// Part: it is a part of the action for the same container that was under way.
	Part  bool      `json:"part,omitempty"`
	Begin time.Time `json:"begin"`
	// End is Begin for what took no time; nil: it is under way.
	End *time.Time `json:"end,omitempty"`
	// Outcome is empty when it went well, else the reason why it did not, in a word.
	Outcome string `json:"outcome,omitempty"`
}
