package devices

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/state"
)

// tableName is the ledger's table in the state database. A record holds all that one pod has; its key is the pod's UID.
const tableName = "deviceGrants"

// recordSchema is the version of the records that are written. Version 1, which had no number, held the names of CDI devices and nothing else;
// it is read as if each had been granted without an answer, so that the answer is asked for again.
const recordSchema = 2

// podRecord is one record of the ledger.
type podRecord struct {
	Schema     int                        `json:"schema"`
	Namespace  string                     `json:"namespace"`
	Name       string                     `json:"name"`
	Containers map[string]containerRecord `json:"containers"`
}

// containerRecord is what one container of a pod was granted.
type containerRecord struct {
	Role      alloc.Role               `json:"role"`
	Grants    map[string]resourceGrant `json:"grants"` // by resource
	GrantedAt time.Time                `json:"grantedAt"`
}

// resourceGrant is what a container was granted of one resource.
type resourceGrant struct {
	// Source is the name of the source that the devices are of.
	Source string `json:"source"`
	// Devices are in the order in which they were chosen.
	Devices []grantedDevice `json:"devices"`
	// Counted is how much was granted of what the node merely counts; then there are no devices, and nobody is asked.
	Counted int `json:"counted,omitempty"`
	// Answer is what the source has said to that; nil: it was not asked, or its answer was lost.
	Answer *source.Answer `json:"answer,omitempty"`
	// Boot is the boot of the machine in which it was asked.
	Boot string `json:"boot,omitempty"`
	// Nodes are the host's device nodes that the answer gives, as far as they are some device's own. They are known of sources that do not tell
	// the nodes of each device.
	Nodes []string `json:"nodes,omitempty"`
	// StartRequired: the source wants to be told before each start. It is what it said when it was asked.
	StartRequired bool `json:"startRequired,omitempty"`
}

// grantedDevice is a device by name, and what it was when it was granted.
type grantedDevice struct {
	Name string `json:"name"`
	// Nodes are inventory.Device.Nodes; none: the device is its name, or the record is of version 1.
	Nodes []string `json:"nodes,omitempty"`
	// Origin is inventory.Device.Origin; empty in records of versions that did not note it.
	Origin string `json:"origin,omitempty"`
	// ShareOf is inventory.Device.ShareOf: it is what was granted, whatever is shared now.
	ShareOf string `json:"shareOf,omitempty"`
}

// UnmarshalJSON reads records of all versions.
func (p *podRecord) UnmarshalJSON(raw []byte) error {
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
		type plain podRecord
		return json.Unmarshal(raw, (*plain)(p))
	default:
		return fmt.Errorf("the record has schema %d, this program knows versions up to %d: use a newer monopod", head.Schema, recordSchema)
	}
}

// unmarshalV1 reads a record of version 1.
func (p *podRecord) unmarshalV1(raw []byte) error {
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
	*p = podRecord{Schema: recordSchema, Namespace: old.Namespace, Name: old.Name, Containers: map[string]containerRecord{}}
	for name, c := range old.Containers {
		rec := containerRecord{Role: alloc.Main, Grants: map[string]resourceGrant{}, GrantedAt: c.GrantedAt}
		if c.Init {
			rec.Role = alloc.Init
		}
		for resource, names := range c.Devices {
			g := resourceGrant{Source: "cdi"}
			for _, n := range names {
				g.Devices = append(g.Devices, grantedDevice{Name: n})
			}
			rec.Grants[resource] = g
		}
		p.Containers[name] = rec
	}
	return nil
}

// with returns a copy of the record in which containers have what they are given here. Records are values that several goroutines
// read, so a change is always a new one.
func (p podRecord) with(containers map[string]containerRecord) podRecord {
	all := maps.Clone(p.Containers)
	if all == nil {
		all = map[string]containerRecord{}
	}
	maps.Copy(all, containers)
	p.Schema, p.Containers = recordSchema, all
	return p
}

// hardware is what is granted.
func (g resourceGrant) hardware(resource string) []alloc.Hardware {
	var all []alloc.Hardware
	for _, d := range g.Devices {
		all = append(all, alloc.Hardware{Resource: resource, Name: d.Name, ShareOf: d.ShareOf, Nodes: d.Nodes})
	}
	if len(g.Nodes) > 0 {
		all = append(all, alloc.Hardware{Nodes: g.Nodes})
	}
	return all
}

// given are the host's device nodes that the answer gives: those that are some device's own, and the others that it names. None, where the nodes of each device are
// known.
func (g resourceGrant) given() (own, shared []string) {
	if g.Answer == nil || slices.ContainsFunc(g.Devices, func(d grantedDevice) bool { return len(d.Nodes) > 0 }) {
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

// answered says that every source has answered for what the pod has, in this boot.
func (p podRecord) answered(boot string) bool {
	for _, c := range p.Containers {
		for _, g := range c.Grants {
			if !g.answeredIn(boot) {
				return false
			}
		}
	}
	return true
}

// answeredIn says that the source has answered in that boot, or that there is nobody to ask.
func (g resourceGrant) answeredIn(boot string) bool {
	return g.Counted > 0 || g.Answer != nil && g.Boot == boot
}

// equal compares what is stored.
func (p podRecord) equal(o podRecord) bool { return reflect.DeepEqual(p, o) }

// summary is what the log says of a grant: names by resource, of all containers.
func (p podRecord) summary() map[string][]string {
	all := map[string][]string{}
	for _, c := range sorted(p.Containers) {
		for resource, g := range c.Grants {
			all[resource] = append(all[resource], g.names()...)
		}
	}
	return all
}

// devices are those of the grant, as the inventory has them or, where it has them no more, as they were.
func (g resourceGrant) devices(w *world, resource string) []inventory.Device {
	var all []inventory.Device
	for _, d := range g.Devices {
		now, ok := d.find(w.part(g.Source), resource)
		if !ok {
			now = inventory.Device{Resource: resource, Name: d.Name, ShareOf: d.ShareOf, Nodes: d.Nodes}
		}
		all = append(all, now)
	}
	return all
}

// find is the device as its source knows it now. A share that is one too many now is still of its device.
func (g grantedDevice) find(s *inventory.Snapshot, resource string) (inventory.Device, bool) {
	d, ok := s.Find(resource, g.Name)
	if !ok && g.ShareOf != "" {
		d, ok = s.Find(resource, g.ShareOf)
	}
	return d, ok
}

func (g resourceGrant) names() []string {
	var names []string
	for _, d := range g.Devices {
		names = append(names, d.Name)
	}
	return names
}

// wants is what the record gives of each resource.
func (c containerRecord) wants() map[string]int {
	n := map[string]int{}
	for resource, g := range c.Grants {
		n[resource] = len(g.Devices) + g.Counted
	}
	return n
}

// withGrant returns a copy of the record with another grant of a resource.
func (c containerRecord) withGrant(resource string, g resourceGrant) containerRecord {
	c.Grants = maps.Clone(c.Grants)
	c.Grants[resource] = g
	return c
}

// answer is all that the container is given. The error tells of two answers that contradict each other.
func (c containerRecord) answer() (source.Answer, error) {
	var parts []source.Part
	for _, resource := range slices.Sorted(maps.Keys(c.Grants)) {
		if a := c.Grants[resource].Answer; a != nil {
			parts = append(parts, source.Part{Resource: resource, Answer: *a})
		}
	}
	return source.Merge(parts)
}

// annotation is the record as the container itself carries it: what the ledger is made again from when it is lost.
type annotation struct {
	Schema int `json:"schema"`
	containerRecord
}

func (c containerRecord) annotation() (string, error) {
	raw, err := json.Marshal(annotation{recordSchema, c})
	return string(raw), err
}

func parseAnnotation(text string) (containerRecord, error) {
	var a annotation
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return containerRecord{}, err
	}
	if a.Schema != recordSchema {
		return containerRecord{}, fmt.Errorf("it has schema %d, this program knows %d", a.Schema, recordSchema)
	}
	return a.containerRecord, nil
}

// ledger is the table of grants. It does not cache.
type ledger struct {
	table state.Table[podRecord]
}

func newLedger(db *state.DB) ledger { return ledger{state.NewTable[podRecord](db, tableName)} }

// load returns the records that can be read, by pod UID, and what is wrong with the others; under an empty UID, what is wrong with all of them.
func (l ledger) load() (recs map[string]podRecord, unreadable map[string]error) {
	recs, err := l.table.List()
	unreadable = map[string]error{}
	if err == nil {
		return recs, unreadable
	}
	keys, all := state.Undecodable(err)
	for _, k := range keys {
		unreadable[k] = err
	}
	if !all {
		unreadable[""] = err
	}
	return recs, unreadable
}

func (l ledger) put(podUID string, rec podRecord) error { return l.table.Put(podUID, rec) }

func (l ledger) remove(podUID string) error { return l.table.Delete(podUID) }
