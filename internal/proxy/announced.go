package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/proxy/announce"
)

const (
	component = "service-proxy"
	// addressAnnounced and addressConflict are the reasons of events.
	addressAnnounced = "AddressAnnounced"
	addressConflict  = "AddressConflict"
)

// announced is what of load balancers' addresses this node makes known on its networks. The methods of nil do nothing.
type announced struct {
	announcer *announce.Announcer
	recorder  record.EventRecorder
	node      string

	mu       sync.Mutex
	services map[string]announcedService // by namespace/name
	changed  bool
}

type announcedService struct {
	of        *corev1.Service
	addresses []netip.Addr
}

// openAnnounced opens what is needed, and lets the table know what the host has already. Without ranges of load balancers there is nothing to announce, and what
// there was is taken away.
func (p *Proxy) openAnnounced() (a *announced, err error) {
	if !p.sharesAddresses() {
		return nil, announce.Remove(p.cfg.Dir)
	}
	a = &announced{node: p.cfg.NodeName, services: map[string]announcedService{}, changed: true}
	a.announcer, err = announce.Open(announce.Config{Dir: p.cfg.Dir, Own: podnet.OfNodes, Guard: p.table.Guard, Tell: a.tell, Log: p.log})
	if err != nil {
		return nil, err
	}
	a.recorder = p.recorder
	return a, p.table.Guard(a.announcer.Noted())
}

func (a *announced) close() {
	if a != nil {
		a.announcer.Close()
	}
}

// start announces what is known, and what is from then on, until ctx ends.
func (a *announced) start(ctx context.Context, wg *sync.WaitGroup) {
	if a != nil {
		a.want()
		wg.Go(func() { a.announcer.Run(ctx) })
	}
}

// set says which addresses of a service this node announces.
func (a *announced) set(key string, of *corev1.Service, addresses []netip.Addr) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.services[key]
	if a.changed = a.changed || !slices.Equal(before.addresses, addresses); len(addresses) == 0 {
		delete(a.services, key)
		return
	}
	a.services[key] = announcedService{of, addresses}
}

// want hands over what is to be announced, if that has changed.
func (a *announced) want() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.changed {
		return
	}
	a.changed = false
	var all []netip.Addr
	for _, s := range a.services {
		all = append(all, s.addresses...)
	}
	a.announcer.Want(all)
}

// tell says to who looks at the service what has become of its address.
func (a *announced) tell(o announce.Outcome) {
	for _, s := range a.having(o.Address) {
		if o.By == "" {
			a.recorder.Eventf(s, corev1.EventTypeNormal, addressAnnounced, "Node %s announces %s on %s", a.node, o.Address, o.Link)
			continue
		}
		a.recorder.Eventf(s, corev1.EventTypeWarning, addressConflict, "Node %s does not announce %s on %s: %s has it", a.node, o.Address, o.Link, o.By)
	}
}

// having are the services with the address, as a rule one.
func (a *announced) having(address netip.Addr) (all []*corev1.Service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.services {
		if slices.Contains(s.addresses, address) {
			all = append(all, s.of)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// sharesAddresses says that there are addresses which one node of the cluster is to announce.
func (p *Proxy) sharesAddresses() bool { return len(p.cfg.Balancers) > 0 }

// learnNodes takes over what is known of nodes, and says whether anything has changed that follows from it.
func (p *Proxy) learnNodes() (changed bool) {
	p.announcers = nil
	if p.seesNodes {
		var nodes []*corev1.Node
		for _, o := range p.nodes.List() {
			nodes = append(nodes, o.(*corev1.Node))
		}
		p.announcers = announcers(nodes)
	}
	now := fmt.Sprint(p.zone(), p.ranges(), p.ownAddresses(), p.announcers)
	changed = now != p.nodesKnown
	p.nodesKnown = now
	return changed
}

// announcers are the names of the nodes that may announce addresses: those that are ready, or where none is, all.
func announcers(nodes []*corev1.Node) (names []string) {
	var ready []string
	for _, n := range nodes {
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
			continue
		}
		names = append(names, n.Name)
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			ready = append(ready, n.Name)
		}
	}
	if len(ready) > 0 {
		names = ready
	}
	slices.Sort(names)
	return names
}
