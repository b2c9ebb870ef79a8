package network

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ruleset"
)

// forgetFlows makes the kernel forget the UDP flows to the host's ports of sandboxes. A UDP flow has no end: without this,
// packets of one that began before the port was mapped, or before it was taken away, would go where they went before, for
// as long as they keep coming.
func (b *Bridge) forgetFlows(recs ...lease) error {
	ports := map[uint16][]HostPort{}
	for _, rec := range recs {
		for _, p := range rec.HostPorts {
			if p.Protocol == "UDP" {
				ports[p.HostPort] = append(ports[p.HostPort], p)
			}
		}
	}
	if len(ports) == 0 {
		return nil
	}
	local, err := ruleset.LocalAddresses(b.rt.Socket)
	if err != nil {
		return err
	}
	err = ruleset.DeleteFlows(b.ct.Socket, slices.Collect(maps.Keys(ports)), func(f ruleset.Flow) bool {
		dst := f.To.Addr()
		return slices.ContainsFunc(ports[f.To.Port()], func(p HostPort) bool {
			return dst == p.HostIP || p.everywhere() && (dst.IsLoopback() || local[dst])
		})
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// No reason to refuse the port: what sticks are flows that began before, for as long as they last.
		b.log.Warn("UDP flows that began before a host port was mapped or freed go on as before: the kernel does not hand out its flows (modprobe nf_conntrack_netlink)", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("forgetting the UDP flows to host ports: %w", err)
	}
	return nil
}

// forgetConnections makes the kernel forget what sandboxes that are gone have left open: an established connection of which nobody hears stays for five days, so
// pods that come and go could fill the table in spite of the bound. Where the table has room for all that it does not matter, and costs nothing.
func (b *Bridge) forgetConnections(recs map[string]lease) {
	if !b.crowded() {
		return
	}
	for id, rec := range recs {
		for _, a := range rec.Addresses {
			if err := ruleset.DeleteFlowsFrom(b.ct.Socket, a.Address.Addr()); err != nil {
				b.log.Debug("connections that a sandbox has left open stay in the kernel's table", "sandbox", id, "address", a.Address.Addr(), "error", err)
			}
		}
	}
}

// crowdedTable says that the kernel's table of connections holds as much as one pod may have there.
func crowdedTable() bool {
	n, ok := numberIn(takenFile)
	return ok && n >= room()/shareOfPod
}
