// Package report is what a node tells people of its devices: values whose JSON is stable, and the pure functions that make them of what the
// manager knows (New) and find what has changed between two of them (Diff).
//
// It guarantees that every device that is there, and every one that a container was granted, is told exactly once. Fields are added, and never
// change their meaning; readers pass over those that they do not know.
package report

import (
	"strings"
	"time"
)

// Health says whether a device can be granted, or used.
type Health string

const (
	// Healthy devices can be granted.
	Healthy Health = "Healthy"
	// Unhealthy devices are known and cannot be granted; Device.Reason says why.
	Unhealthy Health = "Unhealthy"
	// Missing devices were granted to a container that still has them on record, and nobody knows them any more.
	Missing Health = "Missing"
)

// Device is one device as it stands.
type Device struct {
	// Resource is the extended resource that counts it, "vendor.com/class"; Name is unique in it.
	Resource string `json:"resource"`
	Name     string `json:"name"`
	// Aliases are its other names in the resource.
	Aliases []string `json:"aliases,omitempty"`
	// ShareOf is set on the shares of a device that several containers may have at a time: the device's own name, which the first share has too.
	ShareOf string `json:"shareOf,omitempty"`
	// Whole: the name stands for all devices of the resource, which are there by themselves. It is no unit and never granted.
	Whole  bool   `json:"whole,omitempty"`
	Health Health `json:"health"`
	// Reason says why it is not healthy, or what is wrong with a grant of it.
	Reason string `json:"reason,omitempty"`
	// NUMA are the NUMA nodes that it is near; none: not known, or it does not matter.
	NUMA []int `json:"numa,omitempty"`
	// Source is where it is defined: the path of a CDI spec or the endpoint of a device plugin; of a missing device where it was
	// defined when it was granted, or, where that is not on record, the name of the source, such as "cdi".
	Source string `json:"source"`
	// Nodes are the host's device nodes that are its own; of a device plugin's those that its answers have given who has it, for all of one container's devices of
	// the resource together.
	Nodes []string `json:"nodes,omitempty"`
	// SharedNodes are those that it has and that belong to no device alone: /dev/fuse, a driver's control node.
	SharedNodes []string `json:"sharedNodes,omitempty"`
	// Holders are the containers that have it, the one that runs longest in its pod first; none: it is free.
	Holders []Holder `json:"holders"`
	// ExcludedBy are the devices ("vendor.com/class=name") that somebody has and that are the same hardware, or a part of it, or contain it: as
	// long as they are held, this one is not granted.
	ExcludedBy []string `json:"excludedBy,omitempty"`
}

// Free says that the device is nobody's, and nothing that is somebody's excludes it. It need not be healthy.
func (d Device) Free() bool { return !d.Whole && len(d.Holders) == 0 && len(d.ExcludedBy) == 0 }

// Holder is a container that has a device.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	PodUID    string `json:"podUID"`
	Container string `json:"container"`
	// Role is main, init or sidecar. The devices of init containers pass on to those that run after them.
	Role      string    `json:"role"`
	GrantedAt time.Time `json:"grantedAt"`
}

// String is the holder as namespace/pod/container.
func (h Holder) String() string { return h.Namespace + "/" + h.Pod + "/" + h.Container }

// Problem is something that is wrong with what defines the devices.
type Problem struct {
	// Resource is set when the problem concerns one resource only.
	Resource string `json:"resource,omitempty"`
	// Paths are the files or folders that it is about.
	Paths   []string `json:"paths,omitempty"`
	Message string   `json:"message"`
}

// String is the problem on one line.
func (p Problem) String() string {
	if len(p.Paths) == 0 {
		return p.Message
	}
	return strings.Join(p.Paths, ", ") + ": " + p.Message
}

// List is all that is known of a node's devices at one time.
type List struct {
	// Devices are sorted by resource, and then in the natural order of their names.
	Devices  []Device  `json:"devices"`
	Problems []Problem `json:"problems"`
}

// Of is the list of one resource, with the problems that concern it or no single resource.
func (l List) Of(resource string) List {
	of := List{Devices: []Device{}, Problems: []Problem{}}
	for _, d := range l.Devices {
		if d.Resource == resource {
			of.Devices = append(of.Devices, d)
		}
	}
	for _, p := range l.Problems {
		if p.Resource == "" || p.Resource == resource {
			of.Problems = append(of.Problems, p)
		}
	}
	return of
}
