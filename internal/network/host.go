package network

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// chooseRanges says which ranges new sandboxes get their addresses from: those that UpdatePodCIDR has set, those of the
// configuration, or else the default.
func (b *Bridge) chooseRanges(configured []netip.Prefix) (ranges []netip.Prefix, err error) {
	if len(configured) > 0 {
		if b.configured, err = checkRanges(configured); err != nil {
			return nil, err
		}
		ranges = b.configured
	} else {
		ranges = []netip.Prefix{defaultIPv4}
		if hostHasIPv6() {
			ranges = append(ranges, uniqueLocal(machineID(), b.name))
		}
	}
	note, err := b.note()
	if err != nil {
		return nil, err
	}
	if len(note.Updated) > 0 && slices.Equal(note.Configured, b.configured) {
		ranges = note.Updated
	}
	return ranges, checkIPv6(ranges)
}

// servedRanges are those that the host is prepared for: of new sandboxes, and of those that are there. An IPv6 range that only
// sandboxes from before have is left out when the host has no IPv6 any more: it must not keep a node from starting.
func (b *Bridge) servedRanges() []netip.Prefix {
	configured := b.ledger.podRanges()
	return slices.DeleteFunc(b.ledger.usedRanges(), func(r netip.Prefix) bool {
		return r.Addr().Is6() && !slices.Contains(configured, r) && !hostHasIPv6()
	})
}

// checkIPv6 refuses IPv6 ranges on a host without IPv6.
func checkIPv6(ranges []netip.Prefix) error {
	for _, r := range ranges {
		if r.Addr().Is6() && !hostHasIPv6() {
			return fmt.Errorf("network: pod range %s: the host has no IPv6, or cannot forward it: set the sysctls net.ipv6.conf.all.disable_ipv6 and net.ipv6.conf.default.disable_ipv6 to 0, or set network.podCIDRs to an IPv4 range only: %w",
				r, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// machineID is what tells this machine from others.
func machineID() string {
	if raw, err := os.ReadFile("/etc/machine-id"); err == nil && len(raw) > 1 {
		return strings.TrimSpace(string(raw))
	}
	name, _ := os.Hostname()
	return name
}

// checkHost looks whether the bridge's name and the ranges are free, or ours already.
func (b *Bridge) checkHost(ctx context.Context, ranges []netip.Prefix) error {
	link, err := b.link()
	if err != nil {
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	}
	own := 0
	if link != nil {
		note, err := b.note()
		if err != nil {
			return err
		}
		if link.Type() != "bridge" || !note.Bridge && !b.ours(link) {
			return fmt.Errorf("network: %w", b.strange(link))
		}
		own = link.Attrs().Index
	}
	uses, err := b.hostUses(own)
	if err != nil {
		return fmt.Errorf("network: reading the addresses and routes of the host: %w", err)
	}
	var addrs []netlink.Addr
	if own != 0 {
		if addrs, err = addresses(b.nl, link, unix.AF_UNSPEC); err != nil {
			return fmt.Errorf("network: bridge %s: %w", b.name, err)
		}
	}
	for _, r := range ranges {
		err := overlap(r, uses)
		switch {
		case err == nil:
		case hasAddress(addrs, gatewayOf(r)):
			// The other use came later (a VPN, say). Pods have addresses of this range by now, and a restart must not be
			// what takes them down.
			b.log.WarnContext(ctx, "the pod range is not only ours any more", "error", err)
		default:
			return fmt.Errorf("network: %w: %w", err, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

func hasAddress(addrs []netlink.Addr, want netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return prefixOf(a.IPNet).Addr() == want })
}

// ours says whether the bridge carries this node's mark.
func (b *Bridge) ours(link netlink.Link) bool { return link.Attrs().Alias == b.owner }

// hostUses lists the addresses and routes of the host that are not this node's; own is the index of its bridge.
func (b *Bridge) hostUses(own int) ([]use, error) {
	all, err := links(b.nl)
	if err != nil {
		return nil, err
	}
	names, ends := map[int]string{}, map[int]bool{}
	for _, l := range all {
		names[l.Attrs().Index] = l.Attrs().Name
		ends[l.Attrs().Index] = l.Attrs().Group == PortGroup(b.name)
	}
	var uses []use
	addrs, err := addresses(b.nl, nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if p := prefixOf(a.IPNet); a.LinkIndex != own {
			uses = append(uses, use{p, fmt.Sprintf("address %s of %s", p, names[a.LinkIndex])})
		}
	}
	rts, err := routes(b.nl, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, r := range rts {
		if p := prefixOf(r.Dst); r.LinkIndex != own && !ends[r.LinkIndex] && !b.closes(r) {
			uses = append(uses, use{p, fmt.Sprintf("route %s on %s", p, names[r.LinkIndex])})
		}
	}
	return uses, nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}
