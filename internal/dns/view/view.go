// Package view keeps what the cluster's DNS knows: of services and EndpointSlices, whatever names are made of, and nothing else. What a watch
// tells is written straight into it; beside it no objects are kept.
package view

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"monopod.dev/monopod/internal/dns/answer"
)

// View is what is known. It is safe for concurrent use.
type View struct {
	mu sync.RWMutex
	// services are the services by namespace and name; those that only slices have told of are no services yet.
	services map[key]*entry
	// shown is how many services a namespace has.
	shown map[string]int
	// owners are the services that have an address, endpoints those whose headless endpoints have it.
	owners, endpoints map[netip.Addr][]key
	slices            map[key]key // of an EndpointSlice, to its service
	serial            uint32
}

var _ answer.View = (*View)(nil)

type key struct{ namespace, name string }

// entry is a service, and the slices that name it, whichever comes first.
type entry struct {
	// shown is what is answered; nil: there is no such service. It is replaced, and never changed.
	shown  *answer.Service
	object *object
	slices map[string]*slice
}

// New makes an empty view.
func New() *View {
	return &View{
		services: map[key]*entry{}, shown: map[string]int{}, owners: map[netip.Addr][]key{}, endpoints: map[netip.Addr][]key{}, slices: map[key]key{},
		serial: uint32(time.Now().Unix()), // it only has to grow from start to start
	}
}

// Service implements answer.View.
func (v *View) Service(namespace, name string) *answer.Service {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if e := v.services[key{namespace, name}]; e != nil {
		return e.shown
	}
	return nil
}

// HasNamespace implements answer.View.
func (v *View) HasNamespace(namespace string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.shown[namespace] > 0
}

// Serial implements answer.View.
func (v *View) Serial() uint32 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.serial
}

// NamesOf implements answer.View.
func (v *View) NamesOf(address netip.Addr) []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var names []string
	for _, k := range v.owners[address] {
		names = append(names, k.name+"."+k.namespace+".svc")
	}
	for _, k := range v.endpoints[address] {
		for i := range v.services[k].shown.Endpoints {
			if e := &v.services[k].shown.Endpoints[i]; e.Address == address {
				names = append(names, e.Label()+"."+k.name+"."+k.namespace+".svc")
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Services is how many services have names.
func (v *View) Services() (n int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, in := range v.shown {
		n += in
	}
	return n
}

// setService takes a service as it is now; nil: it is gone.
func (v *View) setService(k key, o *object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.entry(k)
	e.object = o
	v.show(k, e)
}

// setSlice takes a slice as it is now; nil: it is gone.
func (v *View) setSlice(k key, s *slice) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// A slice may be given to another service.
	if before, ok := v.slices[k]; ok && (s == nil || before.name != s.service) {
		e := v.entry(before)
		delete(e.slices, k.name)
		delete(v.slices, k)
		v.show(before, e)
	}
	if s == nil {
		return
	}
	of := key{k.namespace, s.service}
	e := v.entry(of)
	if e.slices == nil {
		e.slices = map[string]*slice{}
	}
	e.slices[k.name] = s
	v.slices[k] = of
	v.show(of, e)
}

// replaceServices takes all services that there are, and replaceSlices all slices.
func (v *View) replaceServices(all map[key]*object) {
	for k, o := range all {
		v.setService(k, o)
	}
	v.mu.RLock()
	var gone []key
	for k, e := range v.services {
		if e.object != nil && all[k] == nil {
			gone = append(gone, k)
		}
	}
	v.mu.RUnlock()
	for _, k := range gone {
		v.setService(k, nil)
	}
}

func (v *View) replaceSlices(all map[key]*slice) {
	for k, s := range all {
		v.setSlice(k, s)
	}
	v.mu.RLock()
	var gone []key
	for k := range v.slices {
		if all[k] == nil {
			gone = append(gone, k)
		}
	}
	v.mu.RUnlock()
	for _, k := range gone {
		v.setSlice(k, nil)
	}
}

// entry is called with the lock held, as what is below.
func (v *View) entry(k key) *entry {
	e := v.services[k]
	if e == nil {
		e = &entry{}
		v.services[k] = e
	}
	return e
}

// show makes what is answered of a service, and the way to it from its addresses.
func (v *View) show(k key, e *entry) {
	v.serial++
	before := e.shown
	e.shown = shownOf(e)
	v.index(v.owners, k, ownAddresses(before), ownAddresses(e.shown))
	v.index(v.endpoints, k, endpointAddresses(before), endpointAddresses(e.shown))
	switch {
	case before == nil && e.shown != nil:
		v.shown[k.namespace]++
	case before != nil && e.shown == nil:
		if v.shown[k.namespace]--; v.shown[k.namespace] == 0 {
			delete(v.shown, k.namespace)
		}
	}
	if e.object == nil && len(e.slices) == 0 {
		delete(v.services, k)
	}
}

func ownAddresses(s *answer.Service) []netip.Addr {
	if s == nil {
		return nil
	}
	return s.Addresses
}

func endpointAddresses(s *answer.Service) (all []netip.Addr) {
	if s == nil {
		return nil
	}
	for i := range s.Endpoints {
		all = append(all, s.Endpoints[i].Address)
	}
	return all
}

// index leads from addresses to a service.
func (*View) index(m map[netip.Addr][]key, k key, before, after []netip.Addr) {
	for _, a := range before {
		if i := slices.Index(m[a], k); i >= 0 {
			// The slice is nobody else's: readers hold the lock.
			if m[a] = slices.Delete(m[a], i, i+1); len(m[a]) == 0 {
				delete(m, a)
			}
		}
	}
	for _, a := range after {
		if !slices.Contains(m[a], k) {
			m[a] = append(m[a], k)
		}
	}
}

// shownOf is what is answered of a service; nil: nothing.
func shownOf(e *entry) *answer.Service {
	o := e.object
	if o == nil || o.external == "" && !o.headless && len(o.addresses) == 0 {
		return nil // one without addresses yet has no name yet
	}
	s := &answer.Service{External: o.external, Headless: o.headless, Addresses: o.addresses, Ports: o.ports}
	if !o.headless {
		return s
	}
	// Their order does not depend on that of the slices' coming.
	for _, name := range slices.Sorted(maps.Keys(e.slices)) {
		part := e.slices[name]
		for _, at := range part.endpoints {
			if at.ready || o.unready {
				s.Endpoints = append(s.Endpoints, answer.Endpoint{Address: at.address, Hostname: at.hostname, Ports: part.ports})
			}
		}
	}
	slices.SortStableFunc(s.Endpoints, func(a, b answer.Endpoint) int {
		return cmp.Or(strings.Compare(a.Hostname, b.Hostname), a.Address.Compare(b.Address))
	})
	s.Endpoints = slices.Clip(s.Endpoints)
	return s
}
