package links

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/network"
)

// The uplink is the interface of the host's default route. It may come after the node has started, be replaced by another one (a laptop's), or get another MTU (a
// VPN, a tunnel): packets of pods that are larger would be split, or lost where that is forbidden. So the bridge and all pods have its MTU, at any time.

// uplink is the MTU of the interface of the default route, so that a pod's packets fit without being split, with the index of that interface; 0: there is none.
func uplink(h *netlink.Handle) (mtu, index int) {
	const ethernet = 1500
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rts, err := Routes(h, family)
		if err != nil {
			continue
		}
		for _, r := range rts {
			if !IsDefault(r) || r.LinkIndex == 0 {
				continue
			}
			if link, err := h.LinkByIndex(r.LinkIndex); err == nil {
				return link.Attrs().MTU, r.LinkIndex
			}
		}
	}
	return ethernet, 0
}

// keepMTU gives the sandbox's end of a pair, which was made when the uplink may have had another one, its MTU.
func keepMTU(inside *Socket, mtu int) error {
	eth0, found, err := inside.Link(network.InterfaceName)
	if err != nil || !found || eth0.MTU == mtu {
		return err
	}
	return inside.Do(mtuRequest(eth0.Index, mtu))
}

// SetMTU gives the interface of this index its MTU.
func (r *Socket) SetMTU(index, mtu int) error { return r.Do(mtuRequest(index, mtu)) }

func mtuRequest(index, mtu int) request {
	return linkRequest("set its MTU", unix.RTM_NEWLINK, 0, index, 0, nlsock.Attr32(unix.IFLA_MTU, mtu))
}
