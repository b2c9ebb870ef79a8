package links

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
)

// Pairs are the veth pairs of sandboxes.
type Pairs struct {
	network  podnet.Network
	rt       *Socket // of the host
	nl       *netlink.Handle
	procfs   ns.Procfs // for the sysctls of sandboxes
	ipv6     bool      // the kernel has it; to look that up for each sandbox would take longer with their number
	localnet localnet
}

// Connect makes the sandbox's interface and everything about it as the lease says, whatever of it is there already. It
// returns the index of the host's end, and the addresses that the sandbox has: a pod whose sysctls switch IPv6 off has no
// IPv6 address.
//
// meanwhile is called when all is asked for, while the kernel gets it going.
func (p *Pairs) Connect(rec lease.Lease, path string, meanwhile func() error) (index int, has []lease.Address, err error) {
	target, err := os.Open(path)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil, fmt.Errorf("network namespace %s: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("network namespace: %w", err)
	}
	defer target.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(target.Fd()), &st); err != nil || st.Type != unix.NSFS_MAGIC { // a plain file is what a reboot leaves of a pin
		return 0, nil, fmt.Errorf("%s is no network namespace: %w", path, errdefs.ErrNotFound)
	}
	bridge, found, err := p.rt.Link(p.network.Name)
	if err != nil {
		return 0, nil, err
	}
	if !found {
		return 0, nil, fmt.Errorf("bridge %s is not there; restart monopod to make it: %w", p.network.Name, errdefs.ErrFailedPrecondition)
	}
	err = ns.Run(path, ns.Network, func() error {
		inside, err := OpenSocket()
		if err != nil {
			return err
		}
		defer inside.Close()
		host, fresh, err := p.ensurePair(rec, bridge, int(target.Fd()), inside)
		if err != nil {
			return fmt.Errorf("interface %s: %w", rec.Interface, err)
		}
		index = host.Index
		gateway, err := p.prepareEnd(rec, host, bridge, fresh)
		if err != nil {
			return fmt.Errorf("interface %s: %w", rec.Interface, err)
		}
		if err := p.refuseRouterAdvertisements(network.InterfaceName); err != nil {
			return err
		}
		// Not asked without need.
		noIPv6 := slices.ContainsFunc(rec.Addresses, func(a lease.Address) bool { return a.Address.Addr().Is6() }) && ipv6Off(&p.procfs, network.InterfaceName)
		if has, err = possible(rec.Addresses, noIPv6); err != nil {
			return err
		}
		settled := func() {}
		if fresh {
			s, err := newSettling(has)
			if err != nil {
				return err
			}
			defer s.sock.Close()
			settled = func() { s.wait(host.Peer) }
		}
		if !fresh {
			if err := keepMTU(inside, bridge.MTU); err != nil {
				return err
			}
		}
		if err := inside.Do(append(insideRequests(has, host.Peer), insideRoutes(has, host.Peer, gateway)...)...); err != nil {
			return fmt.Errorf("interface %s in %s: %w", network.InterfaceName, path, err)
		}
		if !fresh {
			if err := leaveLink(inside, has, host.Peer); err != nil {
				return fmt.Errorf("interface %s in %s: %w", network.InterfaceName, path, err)
			}
		}
		if err := meanwhile(); err != nil {
			return err
		}
		settled()
		return nil
	})
	return index, has, err
}

// possible returns the addresses that an interface can have. It is pure.
func possible(all []lease.Address, noIPv6 bool) ([]lease.Address, error) {
	var out []lease.Address
	for _, a := range all {
		if a.Address.Addr().Is4() || !noIPv6 {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the pod range is IPv6, and net.ipv6.conf.*.disable_ipv6 is 1 in the sandbox: remove that sysctl from the pod, or add an IPv4 range to network.podCIDRs: %w",
			errdefs.ErrFailedPrecondition)
	}
	return out, nil
}

// ensurePair makes the veth pair, unless it is there, and returns the host's end, and whether it has made it. One whose
// other end is elsewhere (a namespace that was lost and made anew) is replaced.
func (p *Pairs) ensurePair(rec lease.Lease, bridge Info, target int, inside *Socket) (host Info, fresh bool, err error) {
	create := p.pairRequest(rec, bridge, target)
	err = p.rt.Do(create)
	if errors.Is(err, unix.EEXIST) {
		if err = p.clearPair(rec, inside); err == nil {
			err = p.rt.Do(create)
		}
	}
	fresh = err == nil
	if err != nil && !errors.Is(err, errPairThere) {
		return Info{}, false, err
	}
	host, found, err := p.rt.Link(rec.Interface)
	if err == nil && !found {
		err = fmt.Errorf("it was deleted as soon as it was made: %w", errdefs.ErrUnavailable)
	}
	return host, fresh, err
}

var errPairThere = errors.New("the pair is there")

// clearPair is called when the pair cannot be made for what is there of its names: it makes room, or is errPairThere.
func (p *Pairs) clearPair(rec lease.Lease, inside *Socket) error {
	peer, hasPeer, err := inside.Link(network.InterfaceName)
	if err != nil {
		return err
	}
	host, hasHost, err := p.rt.Link(rec.Interface)
	if err != nil {
		return err
	}
	if hasHost {
		if hasPeer && host.Peer == peer.Index && peer.Peer == host.Index {
			return errPairThere
		}
		if err := p.rt.Do(linkRequest("delete", unix.RTM_DELLINK, 0, host.Index, 0)); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	if hasPeer {
		return fmt.Errorf("the namespace has an interface %s that is not ours: %w", network.InterfaceName, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// pairRequest makes both ends, the sandbox's in its namespace. The host's end has the bridge's hardware address, so that what is written down of the gateway in a sandbox is the same for all.
//
// One queue each: the default is one for each processor, which only XDP programs make use of, and each costs time and
// memory.
func (p *Pairs) pairRequest(rec lease.Lease, bridge Info, target int) request {
	peer := nl.NewRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	for _, a := range []*nl.RtAttr{
		attrName(network.InterfaceName), nlsock.Attr32(unix.IFLA_MTU, bridge.MTU), nlsock.Attr32(unix.IFLA_NET_NS_FD, target),
		nl.NewRtAttr(unix.IFLA_ADDRESS, MACOf(rec.Addresses[0].Address.Addr())),
		nlsock.Attr32(unix.IFLA_NUM_TX_QUEUES, 1), nlsock.Attr32(unix.IFLA_NUM_RX_QUEUES, 1),
	} {
		peer.AddChild(a)
	}
	return linkRequest("make the pair", unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0, 0,
		attrName(rec.Interface), nlsock.Attr32(unix.IFLA_GROUP, int(p.network.PortGroup())), nl.NewRtAttr(unix.IFLA_ADDRESS, bridge.MAC),
		nlsock.Attr32(unix.IFLA_MTU, bridge.MTU), nlsock.Attr32(unix.IFLA_NUM_TX_QUEUES, 1), nlsock.Attr32(unix.IFLA_NUM_RX_QUEUES, 1),
		nlsock.Nested(unix.IFLA_LINKINFO, nl.NewRtAttr(nl.IFLA_INFO_KIND, []byte("veth")), nlsock.Nested(nl.IFLA_INFO_DATA, peer)))
}

// prepareEnd makes of the host's end what it is to be: up, in no bridge, with the way to the sandbox. It returns its hardware address. With fresh it has just been made.
//
// The version before had it as a port of the bridge. Then it gets the bridge's address, which is what the sandbox knows of its gateway.
func (p *Pairs) prepareEnd(rec lease.Lease, host, bridge Info, fresh bool) (mac net.HardwareAddr, err error) {
	mac = host.MAC
	var reqs []request
	if host.Master != 0 {
		mac = bridge.MAC
		reqs = append(reqs, linkRequest("take it out of the bridge", unix.RTM_NEWLINK, 0, host.Index, 0,
			nlsock.Attr32(unix.IFLA_MASTER, 0), nl.NewRtAttr(unix.IFLA_ADDRESS, mac)))
	}
	var attrs []*nl.RtAttr
	if !fresh { // as it was made; each setting more makes the kernel go over all routes of IPv6
		attrs = append(attrs, nlsock.Attr32(unix.IFLA_GROUP, int(p.network.PortGroup())))
	}
	up := linkRequest("set it up", unix.RTM_NEWLINK, 0, host.Index, unix.IFF_UP|unix.IFF_NOARP, attrs...)
	return mac, p.localnet.keep(func(open bool) error {
		return p.rt.Do(append(append(reqs, p.settingsRequest(host.Index, open), up), hostRequests(rec, host.Index)...)...)
	})
}

// settingsRequest has no address come to the host's end by itself, and opens the way by it to the loopback addresses, or shuts it.
func (p *Pairs) settingsRequest(index int, open bool) request {
	if !p.ipv6 {
		return localnetRequest(index, open)
	}
	return linkRequest("configure it", unix.RTM_NEWLINK, 0, index, 0, nlsock.Nested(unix.IFLA_AF_SPEC, localnetOf(open), noAutoOf()))
}

// insideRequests configure the sandbox's end, which has this index, and its loopback.
func insideRequests(has []lease.Address, index int) []request {
	const loopback = 1 // in every namespace
	reqs := []request{
		linkRequest("set lo up", unix.RTM_NEWLINK, 0, loopback, unix.IFF_UP),
		noAutoIPv6(index),
		linkRequest("set it up", unix.RTM_NEWLINK, 0, index, unix.IFF_UP),
	}
	for _, a := range has {
		reqs = append(reqs, addressRequest(HostPrefix(a.Address.Addr()), index))
	}
	return reqs
}

// leaveLink takes from a sandbox that was on the bridge what made others its neighbours: its address with the range's length. The address itself it has by now without that, so connections stay.
// (An IPv6 address keeps its length, and has lost the route by being given anew.)
func leaveLink(inside *Socket, has []lease.Address, index int) error {
	for _, a := range has {
		if !a.Address.Addr().Is4() || a.Address.IsSingleIP() {
			continue
		}
		q := addressRequest(a.Address, index)
		q.What, q.Type, q.Flags = "take the address "+a.Address.String()+" away", unix.RTM_DELADDR, 0
		if err := inside.Do(q); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return nil
}

// refuseRouterAdvertisements keeps other pods from posing as this one's router. It is called on a thread in the sandbox.
func (p *Pairs) refuseRouterAdvertisements(name string) error {
	err := p.procfs.Write("net/ipv6/conf/"+name+"/accept_ra", "0\n")
	if errors.Is(err, os.ErrNotExist) || IsReadOnly(err) {
		return nil // a kernel without IPv6, or a host on which Start has warned of it
	}
	return err
}

// Reattach does of Connect what needs no way into the sandbox. An interface that is not there is no error.
func (p *Pairs) Reattach(rec lease.Lease, bridge Info) error {
	host, found, err := p.rt.Link(rec.Interface)
	if err == nil && found {
		_, err = p.prepareEnd(rec, host, bridge, false)
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Remove deletes the host's ends that are this node's and are not in keep.
func (p *Pairs) Remove(keep map[string]bool) error {
	bridge, found, err := p.rt.Link(p.network.Name)
	if err != nil {
		return err
	}
	all, err := interfaces(p.nl)
	if err != nil {
		return err
	}
	var names []string
	for _, l := range all {
		a := l.Attrs()
		ours := a.Group == p.network.PortGroup() || found && a.MasterIndex == bridge.Index // as the version before had them
		if ours && l.Type() == "veth" && strings.HasPrefix(a.Name, lease.HostInterfacePrefix) && !keep[a.Name] {
			names = append(names, a.Name)
		}
	}
	return p.rt.Delete(names)
}
