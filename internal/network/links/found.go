package links

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network"
)

// Found is an address that a sandbox has.
type Found struct {
	Address netip.Prefix
	// Gateway is that of the default route of the address's family; the zero Addr: there is none.
	Gateway netip.Addr
}

// Find reads what addresses the sandbox's interface has, one of each family at most, IPv4 first. Link-local ones are none. Without the interface there is none.
func Find(path string) (all []Found, err error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(network.InterfaceName)
	if IsNoLink(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addrs, err := addresses(inside, link, family)
		if err != nil {
			return nil, err
		}
		rts, err := Routes(inside, family)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if have := PrefixOf(a.IPNet); have.IsValid() && !have.Addr().IsLinkLocalUnicast() {
				all = append(all, Found{have, gatewayIn(rts)})
				break // one of a family is ours
			}
		}
	}
	return all, nil
}

// gatewayIn is the gateway of the default route among these.
func gatewayIn(rts []netlink.Route) netip.Addr {
	for _, r := range rts {
		if gw, ok := netip.AddrFromSlice(r.Gw); ok && IsDefault(r) {
			return gw.Unmap()
		}
	}
	return netip.Addr{}
}
