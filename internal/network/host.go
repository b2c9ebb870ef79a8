package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const ipForwardFile = "/proc/sys/net/ipv4/ip_forward"

// checkHost looks whether the bridge's name and range are free, or ours already.
func (b *Bridge) checkHost(ctx context.Context) error {
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
			return fmt.Errorf("network: there is an interface %s (%s) that this node has not made; set network.bridge to another name, or delete it (ip link delete %s): %w",
				b.name, link.Type(), b.name, errdefs.ErrFailedPrecondition)
		}
		own = link.Attrs().Index
	}
	uses, err := b.hostUses(own)
	if err != nil {
		return fmt.Errorf("network: reading the addresses and routes of the host: %w", err)
	}
	err = overlap(b.prefix, uses)
	if err == nil {
		return nil
	}
	if own != 0 {
		// The other use came later (a VPN, say). Pods have addresses of this range by now, and a restart must not be
		// what takes them down.
		addrs, lerr := b.nl.AddrList(link, unix.AF_INET)
		if lerr == nil && hasAddress(addrs, b.gateway) {
			b.log.WarnContext(ctx, "the pod range is not only ours any more", "err", err)
			return nil
		}
	}
	return fmt.Errorf("network: %w: %w", err, errdefs.ErrFailedPrecondition)
}

func hasAddress(addrs []netlink.Addr, want netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return prefixOf(a.IPNet).Addr() == want })
}

// ours says whether the bridge carries this node's mark.
func (b *Bridge) ours(link netlink.Link) bool { return link.Attrs().Alias == b.owner }

// hostUses lists the addresses and routes of all interfaces but the one with the index own.
func (b *Bridge) hostUses(own int) ([]use, error) {
	links, err := b.nl.LinkList()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var uses []use
	addrs, err := b.nl.AddrList(nil, unix.AF_INET)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if p := prefixOf(a.IPNet); a.LinkIndex != own {
			uses = append(uses, use{p, fmt.Sprintf("address %s of %s", p, names[a.LinkIndex])})
		}
	}
	routes, err := b.nl.RouteList(nil, unix.AF_INET)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if p := prefixOf(r.Dst); r.LinkIndex != own {
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

// forwarding says whether the kernel forwards IPv4 packets.
func forwarding() (bool, error) {
	raw, err := os.ReadFile(ipForwardFile)
	if err != nil {
		return false, fmt.Errorf("network: %w", err)
	}
	return strings.TrimSpace(string(raw)) != "0", nil
}

// enableForwarding switches forwarding on, and writes down before that it was off.
func (b *Bridge) enableForwarding() error {
	on, err := forwarding()
	if err != nil || on {
		return err
	}
	note, err := b.note()
	if err != nil {
		return err
	}
	note.IPForward = true
	if err := b.notes.Put(b.name, note); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := os.WriteFile(ipForwardFile, []byte("1\n"), 0); err != nil {
		return fmt.Errorf("network: pods need forwarding, and it cannot be switched on: %w; run sysctl -w net.ipv4.ip_forward=1 on the host: %w",
			err, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// restoreForwarding switches forwarding off when this node has switched it on, and nothing else on the host forwards:
// another network of this kind, or of containers by other tools, has a NAT chain.
func (b *Bridge) restoreForwarding(ctx context.Context, fw *firewall) error {
	note, err := b.note()
	if err != nil || !note.IPForward {
		return err
	}
	needed, err := fw.othersNAT()
	if err != nil {
		return err
	}
	if legacy, err := os.ReadFile("/proc/net/ip_tables_names"); err == nil && strings.Contains(string(legacy), "nat") {
		needed = true
	}
	if needed {
		b.log.InfoContext(ctx, "net.ipv4.ip_forward stays 1: other networks on this host use it")
		return nil
	}
	if err := os.WriteFile(ipForwardFile, []byte("0\n"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
