package bridge

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

	"monopod.dev/monopod/internal/network/lease"
)

// chooseRanges says which ranges new sandboxes get their addresses from: those that UpdatePodCIDR has set, those of the
// configuration, or else the default.
func (b *Bridge) chooseRanges(configured []netip.Prefix) (ranges []netip.Prefix, err error) {
	if len(configured) > 0 {
		if b.configured, err = lease.CheckRanges(configured); err != nil {
			return nil, err
		}
		ranges = b.configured
	} else {
		ranges = []netip.Prefix{lease.DefaultIPv4}
		if hostHasIPv6() {
			ranges = append(ranges, lease.UniqueLocal(machineID(), b.name))
		}
	}
	note, err := b.notes.get()
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
	configured := b.ledger.Ranges()
	return slices.DeleteFunc(b.ledger.UsedRanges(), func(r netip.Prefix) bool {
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
	link, err := b.device.link()
	if err != nil {
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	}
	own := 0
	if link != nil {
		note, err := b.notes.get()
		if err != nil {
			return err
		}
		if link.Type() != "bridge" || !note.Bridge && !b.device.ours(link) {
			return fmt.Errorf("network: %w", b.device.strange(link))
		}
		own = link.Attrs().Index
	}
	uses, err := b.ways.uses(own)
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
		case hasAddress(addrs, lease.GatewayOf(r)):
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

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}
