package table

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/proxy/plan"
)

// addFronts adds where an entry is reached, if there is one.
func addFronts(all map[plan.Front]bool, e *entry) {
	if e == nil {
		return
	}
	for f := range e.plan.Inside {
		all[f] = true
	}
}

// forget makes the kernel forget the UDP flows to these fronts that a new packet would not make again: to an endpoint that is gone, or to nobody when there is
// an endpoint now. Flows to endpoints that answer still go on.
func (t *Table) forget(ctx context.Context, touched map[plan.Front]bool) {
	var ports []uint16
	udp := map[plan.Front]bool{}
	for f := range touched {
		if f.Protocol != unix.IPPROTO_UDP {
			continue
		}
		udp[f] = true
		if !slices.Contains(ports, f.Port) {
			ports = append(ports, f.Port)
		}
	}
	if len(udp) == 0 {
		return
	}
	own, err := ruleset.LocalAddresses(t.routes)
	if err == nil {
		err = ruleset.DeleteFlows(t.reader, ports, func(f ruleset.Flow) bool { return t.stale(f, udp, own) })
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		t.log.WarnContext(ctx, "UDP flows to endpoints that are gone go on as before: the kernel does not hand out its flows (modprobe nf_conntrack_netlink)", "error", err)
	} else if err != nil {
		t.log.ErrorContext(ctx, "UDP flows to endpoints that are gone may go on as before", "error", err)
	}
}

// stale says whether a flow is to be forgotten.
func (t *Table) stale(f ruleset.Flow, udp map[plan.Front]bool, own map[netip.Addr]bool) bool {
	front := plan.Front{Protocol: f.Protocol, Addr: f.To.Addr(), Port: f.To.Port()}
	if !udp[front] && (own[front.Addr] || front.Addr.IsLoopback()) {
		if _, another := t.book.wanted[frontElement(services, front)]; another {
			return false
		}
		front.Addr = netip.IPv6Unspecified()
		if f.To.Addr().Is4() {
			front.Addr = netip.IPv4Unspecified()
		}
	}
	if !udp[front] {
		return false
	}
	translated := f.To != f.Answers
	c, wanted := t.book.wanted[frontElement(services, front)]
	if !wanted {
		return translated
	}
	served := false
	for _, target := range []plan.Target{c.first.plan.Inside[front], c.first.plan.Outside[front]} {
		l := c.first.plan.Lists[target.List]
		served = served || len(l.Endpoints) > 0
		if slices.Contains(l.Endpoints, f.Answers) || slices.Contains(l.Keep, f.Answers) {
			return false
		}
	}
	return translated || served
}

func frontElement(k kind, f plan.Front) element {
	return element{setID{k, uint8(familyOf(f.Addr))}, string(frontKey(f))}
}

// HostAddresses are those that the host has, but for loopback ones.
func (t *Table) HostAddresses() map[netip.Addr]bool {
	all, err := ruleset.LocalAddresses(t.routes)
	if err != nil {
		t.log.Error("the addresses of the host are not known", "error", err)
	}
	maps.DeleteFunc(all, func(a netip.Addr, _ bool) bool { return a.IsLoopback() })
	return all
}
