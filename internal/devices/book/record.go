package book

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/kit/ordered"
)

// recordSchema is the version of the records that are written. Version 1, which had no number, held the names of CDI devices and nothing else;
// it is read as if each had been granted without an answer, so that the answer is asked for again.
const recordSchema = 2

// Record is what one pod has: one record of the ledger, whose key is the pod's UID. Its JSON, with that of all that is in it, is a file format.
type Record struct {
	Schema     int                  `json:"schema"`
	Namespace  string               `json:"namespace"`
	Name       string               `json:"name"`
	Containers map[string]Container `json:"containers"`
}

// Container is what one container of a pod was granted.
type Container struct {
	Role      alloc.Role       `json:"role"`
	Grants    map[string]Grant `json:"grants"` // by resource
	GrantedAt time.Time        `json:"grantedAt"`
}

// Grant is what a container was granted of one resource.
type Grant struct {
	// Source is the name of the source that the devices are of.
	Source string `json:"source"`
	// Devices are in the order in which they were chosen.
	Devices []Device `json:"devices"`
	// Counted is how much was granted of what the node merely counts; then there are no devices, and nobody is asked.
	Counted int `json:"counted,omitempty"`
	// Answer is what the source has said to that; nil: it was not asked, or its answer was lost.
	Answer *answer.Answer `json:"answer,omitempty"`
	// Boot is the boot of the machine in which it was asked.
	Boot string `json:"boot,omitempty"`
	// Nodes are the host's device nodes that the answer gives, as far as they are some device's own. They are known of sources that do not tell
	// the nodes of each device.
	Nodes []string `json:"nodes,omitempty"`
	// StartRequired: the source wants to be told before each start. It is what it said when it was asked.
	StartRequired bool `json:"startRequired,omitempty"`
}

// Device is a device by name, and what it was when it was granted.
type Device struct {
	Name string `json:"name"`
	// Nodes are inventory.Device.Nodes; none: the device is its name, or the record is of version 1.
	Nodes []string `json:"nodes,omitempty"`
	// Origin is inventory.Device.Origin; empty in records of versions that did not note it.
	Origin string `json:"origin,omitempty"`
	// ShareOf is inventory.Device.ShareOf: it is what was granted, whatever is shared now.
	ShareOf string `json:"shareOf,omitempty"`
}

// UnmarshalJSON reads records of all versions.
func (p *Record) UnmarshalJSON(raw []byte) error {
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	switch head.Schema {
	case 0:
		return p.unmarshalV1(raw)
	case recordSchema:
		type plain Record
		return json.Unmarshal(raw, (*plain)(p))
	default:
		return fmt.Errorf("the record has schema %d, this program knows versions up to %d: use a newer monopod", head.Schema, recordSchema)
	}
}

// unmarshalV1 reads a record of version 1.
func (p *Record) unmarshalV1(raw []byte) error {
	var old struct {
		Namespace, Name string
		Containers      map[string]struct {
			Devices   map[string][]string
			Init      bool
			GrantedAt time.Time
		}
	}
	if err := json.Unmarshal(raw, &old); err != nil {
		return err
	}
	*p = Record{Schema: recordSchema, Namespace: old.Namespace, Name: old.Name, Containers: map[string]Container{}}
	for name, c := range old.Containers {
		rec := Container{Role: alloc.Main, Grants: map[string]Grant{}, GrantedAt: c.GrantedAt}
		if c.Init {
			rec.Role = alloc.Init
		}
		for resource, names := range c.Devices {
			g := Grant{Source: "cdi"}
			for _, n := range names {
				g.Devices = append(g.Devices, Device{Name: n})
			}
			rec.Grants[resource] = g
		}
		p.Containers[name] = rec
	}
	return nil
}

// With returns a copy of the record in which containers have what they are given here. Records are values that several goroutines
// read, so a change is always a new one.
func (p Record) With(containers map[string]Container) Record {
	all := maps.Clone(p.Containers)
	if all == nil {
		all = map[string]Container{}
	}
	maps.Copy(all, containers)
	p.Schema, p.Containers = recordSchema, all
	return p
}

// hardware is what is granted.
func (g Grant) hardware(resource string) []alloc.Hardware {
	var all []alloc.Hardware
	for _, d := range g.Devices {
		all = append(all, alloc.Hardware{Resource: resource, Name: d.Name, ShareOf: d.ShareOf, Nodes: d.Nodes})
	}
	if len(g.Nodes) > 0 {
		all = append(all, alloc.Hardware{Nodes: g.Nodes})
	}
	return all
}

// Given are the host's device nodes that the answer gives: those that are some device's own, and the others that it names. None, where the nodes of each device are
// known.
func (g Grant) Given() (own, shared []string) {
	if g.Answer == nil || slices.ContainsFunc(g.Devices, func(d Device) bool { return len(d.Nodes) > 0 }) {
		return nil, nil
	}
	for _, n := range g.Answer.Nodes {
		if !slices.Contains(g.Nodes, n.HostPath) && !slices.Contains(shared, n.HostPath) {
			shared = append(shared, n.HostPath)
		}
	}
	slices.Sort(shared)
	return g.Nodes, shared
}

// Answered says that every source has answered for what the pod has, in this boot.
func (p Record) Answered(boot string) bool {
	for _, c := range p.Containers {
		for _, g := range c.Grants {
			if !g.AnsweredIn(boot) {
				return false
			}
		}
	}
	return true
}

// AnsweredIn says that the source has answered in that boot, or that there is nobody to ask.
func (g Grant) AnsweredIn(boot string) bool {
	return g.Counted > 0 || g.Answer != nil && g.Boot == boot
}

// Equal compares what is stored.
func (p Record) Equal(o Record) bool { return reflect.DeepEqual(p, o) }

// Summary is what the log says of a grant: names by resource, of all containers.
func (p Record) Summary() map[string][]string {
	all := map[string][]string{}
	for _, c := range ordered.Map(p.Containers) {
		for resource, g := range c.Grants {
			all[resource] = append(all[resource], g.Names()...)
		}
	}
	return all
}

// Known are the devices of the grant, as their source knows them now or, where it does not any more, as they were.
func (g Grant) Known(w *World, resource string) []inventory.Device {
	var all []inventory.Device
	for _, d := range g.Devices {
		now, ok := d.Find(w.Part(g.Source).Snapshot, resource)
		if !ok {
			now = inventory.Device{Resource: resource, Name: d.Name, ShareOf: d.ShareOf, Nodes: d.Nodes}
		}
		all = append(all, now)
	}
	return all
}

// Find is the device as its source knows it now. A share that is one too many now is still of its device.
func (d Device) Find(s *inventory.Snapshot, resource string) (inventory.Device, bool) {
	now, ok := s.Find(resource, d.Name)
	if !ok && d.ShareOf != "" {
		now, ok = s.Find(resource, d.ShareOf)
	}
	return now, ok
}

// Names are those of the devices, in order.
func (g Grant) Names() []string {
	var names []string
	for _, d := range g.Devices {
		names = append(names, d.Name)
	}
	return names
}

// Wants is what the record gives of each resource.
func (c Container) Wants() map[string]int {
	n := map[string]int{}
	for resource, g := range c.Grants {
		n[resource] = len(g.Devices) + g.Counted
	}
	return n
}

// WithGrant returns a copy of the record with another grant of a resource.
func (c Container) WithGrant(resource string, g Grant) Container {
	c.Grants = maps.Clone(c.Grants)
	c.Grants[resource] = g
	return c
}

// Answer is all that the container is given. The error tells of two answers that contradict each other.
func (c Container) Answer() (answer.Answer, error) {
	var parts []answer.Part
	for _, resource := range slices.Sorted(maps.Keys(c.Grants)) {
		if a := c.Grants[resource].Answer; a != nil {
			parts = append(parts, answer.Part{Resource: resource, Answer: *a})
		}
	}
	return answer.Merge(parts)
}

// annotation is the record as the container itself carries it: what the ledger is made again from when it is lost.
type annotation struct {
	Schema int `json:"schema"`
	Container
}

// Annotation is what the container is to carry, so that what it has is known when the ledger is lost.
func (c Container) Annotation() (string, error) {
	raw, err := json.Marshal(annotation{recordSchema, c})
	return string(raw), err
}

// ParseAnnotation reads what Annotation has written.
func ParseAnnotation(text string) (Container, error) {
	var a annotation
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return Container{}, err
	}
	if a.Schema != recordSchema {
		return Container{}, fmt.Errorf("it has schema %d, this program knows %d", a.Schema, recordSchema)
	}
	return a.Container, nil
}
