package book

import (
	"fmt"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
)

// Request asks for the devices of a pod's containers. It makes sense: whoever makes it has looked.
type Request struct {
	UID, Namespace, Name string
	// Created is when the pod was: of those that wait for the same devices, the oldest gets them first.
	Created time.Time
	// Needs are of the containers that have nothing yet, in the order in which they start.
	Needs []Need
	// Counted are the resources, of those that are asked for, that the Node's status counts though they may be no devices. Where no source has such
	// a one either, the number alone is granted.
	Counted map[string]int64
	// At is when the devices are granted, if they are.
	At time.Time
}

// Need is what one container asks for.
type Need struct {
	Container string
	Role      alloc.Role
	// Want are numbers of devices, above 0, by resource. There is one at least.
	Want map[string]int
}

// String names the pod.
func (r Request) String() string {
	return fmt.Sprintf("pod %s/%s (%s)", r.Namespace, r.Name, r.UID)
}

// resources are all that is asked for.
func (r Request) resources() map[string]bool {
	all := map[string]bool{}
	for _, n := range r.Needs {
		for resource := range n.Want {
			all[resource] = true
		}
	}
	return all
}
