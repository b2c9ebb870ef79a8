package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/host/sockdiag"
	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/proxy/plan"
)

// addressIgnored is the reason of an event: nothing is led to the service at an address that it names.
const addressIgnored = "AddressIgnored"

// numbers are IP's numbers of those that a service can have.
var numbers = map[corev1.Protocol]uint8{corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17, corev1.ProtocolSCTP: 132}

// loopback are the ports of a service that the node's own programs do not reach at 127.0.0.1, because others of them listen there.
type loopback struct {
	uid   types.UID
	ports string
	taken map[plan.Port]bool
}

// input is what a service's plan is made from, but for its endpoints.
func (p *Proxy) input(key string, s *corev1.Service) plan.Input {
	n := plan.Node{Name: p.cfg.NodeName, Zone: p.zone(), Balancers: p.cfg.Balancers, Announcers: p.announcers, External: p.cfg.External, OwnPorts: map[plan.Port]bool{}}
	for _, o := range p.cfg.OwnPorts {
		n.OwnPorts[plan.Port{Protocol: numbers[o.Protocol], Number: uint16(o.Port)}] = true
	}
	if len(s.Spec.ExternalIPs) > 0 || s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		if p.ownKnown == nil { // once for all that are pending: the kernel goes through all interfaces, of which pods have many
			p.ownKnown = p.addresses()
		}
		n.Addresses, n.Closed = p.ownKnown, p.closed()
	}
	return plan.Input{Service: s, Node: n, Loopback: p.taken(key, s)}
}

// addresses are the node's own: those of its status, and what its interfaces have but for what is load balancers'.
func (p *Proxy) addresses() (all []netip.Addr) {
	local := map[netip.Addr]bool{}
	for _, a := range p.ownAddresses() {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			local[ip.Unmap()] = true
		}
	}
	if p.table != nil {
		maps.Copy(local, p.table.HostAddresses())
	}
	for a := range local {
		if !iprange.Contain(p.cfg.Balancers, a) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// closed are the ranges whose addresses no service takes by naming them.
func (p *Proxy) closed() []iprange.Range {
	all := slices.Clone(p.cfg.Closed)
	for _, r := range p.ranges() {
		all = append(all, iprange.Of(r))
	}
	return all
}

// taken are the ports of a load balancer at which a process of this node listens, at a loopback address too. They are looked at when the service comes and when its
// ports change: what a process has then it keeps.
func (p *Proxy) taken(key string, s *corev1.Service) map[plan.Port]bool {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || p.cfg.Listens == nil {
		delete(p.loopback, key)
		return nil
	}
	var ports []string
	for _, port := range s.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", port.Port, port.Protocol))
	}
	known := p.loopback[key]
	if now := strings.Join(ports, " "); known.uid != s.UID || known.ports != now {
		known = loopback{uid: s.UID, ports: now, taken: map[plan.Port]bool{}}
		for _, port := range s.Spec.Ports {
			if who := p.cfg.Listens(port.Protocol, port.Port); who != "" {
				known.taken[plan.Port{Protocol: numbers[port.Protocol], Number: uint16(port.Port)}] = true
				p.log.Info("a load balancer is not reached at 127.0.0.1: a process of the node listens there", "service", key, "port", port.Port, "listener", who)
			}
		}
		p.loopback[key] = known
	}
	return known.taken
}

// tell says what of a service is not as it asks, once.
func (p *Proxy) tell(ctx context.Context, key string, s *corev1.Service, made *plan.Service) {
	said := fmt.Sprint(made.Faults)
	if p.faults[key] == said {
		return
	}
	if len(made.Faults) == 0 {
		delete(p.faults, key)
		return
	}
	p.faults[key] = said
	p.log.WarnContext(ctx, "a service is served but for this", "service", key, "faults", made.Faults)
	for _, what := range made.Ignored {
		p.recorder.Eventf(s, corev1.EventTypeWarning, addressIgnored, "Node %s leads nothing to the service there: %s", p.cfg.NodeName, what)
	}
}

// Listener says which process of this machine listens at a port, at any address.
func Listener(protocol corev1.Protocol, port int32) string {
	return sockdiag.AnyListener(strings.ToLower(string(protocol)), uint16(port))
}
