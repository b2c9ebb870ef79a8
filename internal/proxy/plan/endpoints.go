package plan

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is one address of a slice at one port.
type endpoint struct {
	at                          netip.AddrPort
	ready, serving, terminating bool
	local                       bool
	zones, nodes                []string // hints
}

// endpointsOf are the endpoints of a service's port in a family. What two slices have, as for a moment when an endpoint moves from one to another, is there once:
// as the one has it that says more of it is alive.
func endpointsOf(in Input, portName string, protocol string, family discoveryv1.AddressType) []endpoint {
	found := map[netip.AddrPort]endpoint{}
	for _, slice := range in.Slices {
		if slice.AddressType != family {
			continue
		}
		for _, p := range slice.Ports {
			if deref(p.Name, "") != portName || string(deref(p.Protocol, "TCP")) != protocol || p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
				continue
			}
			for i := range slice.Endpoints {
				e, ok := parse(&slice.Endpoints[i], uint16(*p.Port), in.Node.Name)
				if ok && e.at.Addr().Is4() == (family == discoveryv1.AddressTypeIPv4) && (e.ready || !found[e.at].ready && (e.serving || !found[e.at].serving)) {
					found[e.at] = e
				}
			}
		}
	}
	all := make([]endpoint, 0, len(found))
	for _, e := range found {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b endpoint) int { return a.at.Compare(b.at) })
	return all
}

// parse reads an endpoint. Its first address is the only one that counts (EndpointSlice, endpoints[].addresses).
func parse(e *discoveryv1.Endpoint, port uint16, node string) (out endpoint, ok bool) {
	if len(e.Addresses) == 0 {
		return out, false
	}
	addr, err := netip.ParseAddr(e.Addresses[0])
	// The API takes none of these. Who came by a service to the node's own loopback would be where nobody else gets.
	if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() {
		return out, false
	}
	out.at = netip.AddrPortFrom(addr, port)
	out.ready = deref(e.Conditions.Ready, true)
	out.serving = deref(e.Conditions.Serving, out.ready)
	out.terminating = deref(e.Conditions.Terminating, false)
	out.local = node != "" && deref(e.NodeName, "") == node
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.zones = append(out.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.nodes = append(out.nodes, n.Name)
		}
	}
	return out, true
}

// choice is what the policies Cluster and Local have to choose from.
type choice struct {
	cluster, local []endpoint
	// anywhere: there is an endpoint that could answer, somewhere.
	anywhere bool
}

// choose decides who gets new connections: those that are ready, by the hints of the slices; without any those that are about to end but answer still (KEP-1669).
func choose(all []endpoint, node Node) (c choice) {
	ready := filter(all, func(e endpoint) bool { return e.ready })
	ending := filter(all, func(e endpoint) bool { return e.serving && e.terminating })
	c.anywhere = len(ready)+len(ending) > 0
	c.cluster = filter(ready, near(ready, node))
	if len(c.cluster) == 0 {
		c.cluster = ending
	}
	isLocal := func(e endpoint) bool { return e.local }
	if c.local = filter(ready, isLocal); len(c.local) == 0 {
		c.local = filter(ending, isLocal)
	}
	return c
}

// near is who is near enough by the hints: those for this node, or for its zone, where each ready endpoint has such hints and one of them is for here; else all.
func near(ready []endpoint, node Node) func(endpoint) bool {
	for _, by := range []struct {
		of   func(endpoint) []string
		here string
	}{
		{func(e endpoint) []string { return e.nodes }, node.Name},
		{func(e endpoint) []string { return e.zones }, node.Zone},
	} {
		here := func(e endpoint) bool { return by.here != "" && slices.Contains(by.of(e), by.here) }
		none := func(e endpoint) bool { return len(by.of(e)) == 0 }
		if !slices.ContainsFunc(ready, none) && slices.ContainsFunc(ready, here) {
			return here
		}
	}
	return func(endpoint) bool { return true }
}

func filter(all []endpoint, keep func(endpoint) bool) (out []endpoint) {
	for _, e := range all {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
