// Package inventory says what the devices of a host look like to those who count, choose and grant them, wherever they
// come from: CDI specs, device plugins. It holds values only.
package inventory

import (
	"cmp"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// Device is one unit of hardware that a container can be given.
type Device struct {
	// Resource is the extended resource that counts it: for CDI its kind, "vendor.com/class".
	Resource string `json:"resource"`
	// Name is unique in the resource, and is what the ledger stores.
	Name string `json:"name"`
	// Aliases are the device's other names in the resource.
	Aliases []string `json:"aliases,omitempty"`
	// Whole says that the name stands for all the hardware of its resource at once. Such a device is not a unit: it is
	// never offered beside the others, only when it is all that the resource has (see Units).
	Whole bool `json:"whole,omitempty"`
	// ShareOf is set on the shares of a device that several containers may have at a time, each of which is a unit: it is the device's own
	// name, which the first share has too.
	ShareOf string `json:"shareOf,omitempty"`
	// Origin is where the device is defined: for CDI the spec's path, for a device plugin its endpoint.
	Origin string `json:"origin"`
	// Nodes are the paths of the host's device nodes that are the device's own, sorted: what it is, whatever it is called. None: it is its name.
	Nodes []string `json:"nodes,omitempty"`
	// SharedNodes are the others of its definition, sorted: they belong to no device alone (/dev/fuse, a driver's control node).
	SharedNodes []string `json:"sharedNodes,omitempty"`
	// Unhealthy says why the device must not be granted now; empty: it is healthy.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Absent says that it is unhealthy because the hardware is not there: it does not count as capacity.
	Absent bool `json:"absent,omitempty"`
	// NUMA are the NUMA nodes that the device is near; none: it is not known, or does not matter.
	NUMA []int `json:"numa,omitempty"`
}

// ShareAnnotation is the annotation of a device in its CDI spec, or of the spec for all of its devices, that says of how many containers each may
// be at a time.
const ShareAnnotation = "monopod.dev/shares"

// MaxShares is the most that a device is shared: each share is a device of its own to all who count them.
const MaxShares = 1024

// Is says whether name is one of the device's names.
func (d Device) Is(name string) bool {
	if d.Name == name {
		return true
	}
	for _, a := range d.Aliases {
		if a == name {
			return true
		}
	}
	return false
}

// Quantity is how much there is of a resource, granted or not.
type Quantity struct {
	// Capacity is the number of devices that are there, Allocatable that of those which are healthy.
	Capacity, Allocatable int64
}

// Problem is something that is wrong with what defines the devices, in words for the person who can mend it.
type Problem struct {
	// Resource is set when the problem concerns one resource only.
	Resource string `json:"resource,omitempty"`
	// Paths are the files or folders that it is about; all of them when they contradict each other.
	Paths []string `json:"paths"`
	// Message does not repeat the paths when there is only one.
	Message string `json:"message"`
}

// String is the problem on one line.
func (p Problem) String() string { return strings.Join(p.Paths, ", ") + ": " + p.Message }

// Snapshot is all that is known of the devices at one time. It is never changed: a newer one replaces it.
type Snapshot struct {
	// Places are where devices were looked for, for messages.
	Places []string
	// Resources are the names of all resources that are defined, also of those without a single usable device.
	Resources []string
	// Awaited are those of Resources, sorted, whose devices are not known yet after a start of the node, as they were before it.
	Awaited []string
	// Devices are sorted by resource, and then in the natural order of their names.
	Devices []Device
	// Problems are sorted by path.
	Problems []Problem
}

// Of returns the devices of one resource. They are the snapshot's own: not to be changed.
func (s *Snapshot) Of(resource string) []Device {
	first, _ := slices.BinarySearchFunc(s.Devices, resource, func(d Device, r string) int { return cmp.Compare(d.Resource, r) })
	n := 0
	for first+n < len(s.Devices) && s.Devices[first+n].Resource == resource {
		n++
	}
	return s.Devices[first : first+n : first+n]
}

// Find returns the device of a resource that has the name, as its first or as an alias.
func (s *Snapshot) Find(resource, name string) (Device, bool) {
	for _, d := range s.Of(resource) {
		if d.Is(name) {
			return d, true
		}
	}
	return Device{}, false
}

// Compare is the order of a snapshot's devices: by resource, and then the natural one of their names.
func Compare(a, b Device) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), CompareNames(a.Name, b.Name))
}

// Units returns those of one resource's devices that count as its capacity: all but the Whole ones, which name the same
// hardware again; or the Whole ones where there is nothing else, for then they are the only handle on the hardware.
func Units(devices []Device) []Device {
	if !slices.ContainsFunc(devices, func(d Device) bool { return d.Whole }) {
		return devices // nearly always: spare the copy
	}
	var units, whole []Device
	for _, d := range devices {
		if d.Whole {
			whole = append(whole, d)
		} else {
			units = append(units, d)
		}
	}
	if len(units) == 0 {
		return whole
	}
	return units
}

// CDIName is the device's fully qualified CDI name, "vendor.com/class=name", as CRI's CDIDevices carries it.
func CDIName(resource, name string) string {
	vendor, class := parser.ParseQualifier(resource)
	return parser.QualifiedName(vendor, class, name)
}
