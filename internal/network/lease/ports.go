package lease

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// Protocols are those that a host port may have, with their numbers (IANA).
var Protocols = map[string]byte{"TCP": 6, "UDP": 17, "SCTP": 132}

// CanonicalPorts returns the ports in their one form: all addresses are the zero Addr, and an IPv4 address is not written
// as IPv6. What is given twice is taken once. It is pure.
//
// Errors: InvalidArgument (a protocol or a port that cannot be), NotImplemented (IPv6's loopback address), AlreadyExists (the same host port
// for two ports).
func CanonicalPorts(ports []network.HostPort) ([]network.HostPort, error) {
	var out []network.HostPort
	own := portIndex{}
	for _, p := range ports {
		p.HostIP = p.HostIP.Unmap()
		switch {
		case Protocols[p.Protocol] == 0:
			return nil, fmt.Errorf("host port %d: protocol %q: it must be TCP, UDP or SCTP: %w", p.HostPort, p.Protocol, errdefs.ErrInvalidArgument)
		case p.HostPort == 0 || p.ContainerPort == 0:
			return nil, fmt.Errorf("host port %s: both ports must be from 1 to 65535: %w", p, errdefs.ErrInvalidArgument)
		case p.HostIP.Zone() != "":
			return nil, fmt.Errorf("host port %s: a host address cannot have a zone: %w", p, errdefs.ErrInvalidArgument)
		case p.HostIP.Is6() && p.HostIP.IsLoopback():
			// The packets to the pod could be made, and its answers come: but Linux drops what is for ::1 and comes from another interface.
			return nil, fmt.Errorf("host port %s: Linux has no way from ::1 to another interface and back (no route_localnet of IPv6): use 127.0.0.1, or another address of the host: %w",
				p, errdefs.ErrNotImplemented)
		}
		if p.Everywhere() {
			p.HostIP = netip.Addr{}
		}
		if slices.Contains(out, p) {
			continue
		}
		if err := own.conflict([]network.HostPort{p}, nil); err != nil {
			return nil, fmt.Errorf("host port %s is asked for twice: %w", p, errdefs.ErrAlreadyExists)
		}
		own.add("this sandbox", []network.HostPort{p})
		out = append(out, p)
	}
	return out, nil
}

// reachable says whether a host port can lead to these addresses: it takes one of the family of its host address.
func reachable(p network.HostPort, addrs []Address) bool {
	return p.Everywhere() || slices.ContainsFunc(addrs, func(a Address) bool { return a.Address.Addr().Is4() == p.HostIP.Is4() })
}

// portIndex tells whose a host port is.
type portIndex map[portKey][]portOwner

type portKey struct {
	protocol string
	port     uint16
}

type portOwner struct {
	ip        netip.Addr // the zero Addr: all
	sandboxID ids.SandboxID
}

// conflict is AlreadyExists when one of the ports is another's: at the same address, or at all addresses. leases serve to
// name its pod.
func (x portIndex) conflict(ports []network.HostPort, leases map[ids.SandboxID]Lease) error {
	for _, p := range ports {
		for _, o := range x[portKey{p.Protocol, p.HostPort}] {
			if !p.Everywhere() && o.ip.IsValid() && o.ip != p.HostIP {
				continue
			}
			whose := "sandbox " + string(o.sandboxID)
			if pod := leases[o.sandboxID].Pod; pod != "" {
				whose = "pod " + pod + " (" + whose + ")"
			}
			return fmt.Errorf("host port %s: port %d belongs to %s; remove that pod, or use another port: %w", p, p.HostPort, whose, errdefs.ErrAlreadyExists)
		}
	}
	return nil
}

func (x portIndex) add(sandboxID ids.SandboxID, ports []network.HostPort) {
	for _, p := range ports {
		k := portKey{p.Protocol, p.HostPort}
		x[k] = append(x[k], portOwner{p.HostIP, sandboxID})
	}
}

func (x portIndex) remove(sandboxID ids.SandboxID, ports []network.HostPort) {
	for _, p := range ports {
		k := portKey{p.Protocol, p.HostPort}
		x[k] = slices.DeleteFunc(x[k], func(o portOwner) bool { return o.sandboxID == sandboxID && o.ip == p.HostIP })
		if len(x[k]) == 0 {
			delete(x, k)
		}
	}
}
