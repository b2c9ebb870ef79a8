package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/rules"
)

// flows are what connection tracking knows of sandboxes.
type flows struct {
	rt  *links.Socket  // the host's addresses
	ct  *nlsock.Socket // connection tracking
	log *slog.Logger
	// crowded says that the kernel's table of connections is; a test says it is.
	crowded func() bool
}

// openFlows opens connection tracking in the network namespace of the calling thread.
func openFlows(rt *links.Socket, log *slog.Logger) (*flows, error) {
	ct, err := nlsock.Open(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	return &flows{rt: rt, ct: ct, log: log, crowded: rules.Crowded}, nil
}

func (f *flows) close() { f.ct.Close() }

// forgetPorts makes the kernel forget the UDP flows to the host's ports of sandboxes. A UDP flow has no end: without this,
// packets of one that began before the port was mapped, or before it was taken away, would go where they went before, for
// as long as they keep coming.
func (f *flows) forgetPorts(recs ...lease.Lease) error {
	ports := map[uint16][]network.HostPort{}
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
	local, err := ruleset.LocalAddresses(f.rt.Socket)
	if err != nil {
		return err
	}
	err = ruleset.DeleteFlows(f.ct, slices.Collect(maps.Keys(ports)), func(to ruleset.Flow) bool {
		dst := to.To.Addr()
		return slices.ContainsFunc(ports[to.To.Port()], func(p network.HostPort) bool {
			return dst == p.HostIP || p.Everywhere() && (dst.IsLoopback() || local[dst])
		})
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// No reason to refuse the port: what sticks are flows that began before, for as long as they last.
		f.log.Warn("UDP flows that began before a host port was mapped or freed go on as before: the kernel does not hand out its flows (modprobe nf_conntrack_netlink)", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("forgetting the UDP flows to host ports: %w", err)
	}
	return nil
}

// forgetSandboxes makes the kernel forget what sandboxes that are gone have left open: an established connection of which nobody hears stays for five days, so
// pods that come and go could fill the table in spite of the bound. Where the table has room for all that it does not matter, and costs nothing.
func (f *flows) forgetSandboxes(recs map[ids.SandboxID]lease.Lease) {
	if !f.crowded() {
		return
	}
	for id, rec := range recs {
		for _, a := range rec.Addresses {
			if err := ruleset.DeleteFlowsFrom(f.ct, a.Address.Addr()); err != nil {
				f.log.Debug("connections that a sandbox has left open stay in the kernel's table", "sandbox", id, "address", a.Address.Addr(), "error", err)
			}
		}
	}
}
