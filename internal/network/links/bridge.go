package links

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/podnet"
)

// Bridge is the bridge itself, to which nothing is connected but the host's addresses in the ranges.
type Bridge struct {
	name  string
	owner string // its alias: which node made it
	nl    *netlink.Handle
	rt    *Socket
	log   *slog.Logger
}

// Link returns the bridge, or nil when there is none.
func (d *Bridge) Link() (netlink.Link, error) {
	link, err := d.nl.LinkByName(d.name)
	if IsNoLink(err) {
		return nil, nil
	}
	return link, err
}

// IsNoLink says that there is no interface of the name that was looked for.
// IsNoLink says that there is no interface of the name that was looked for.
func IsNoLink(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone)
}

// Ensure makes the bridge, or makes the one that is there as it should be, but for its addresses. A new one has the first gateway's hardware address.
func (d *Bridge) Ensure(gateways []netip.Prefix) (netlink.Link, error) {
	link, err := d.Link()
	if err != nil {
		return nil, err
	}
	if link != nil && link.Type() != "bridge" {
		return nil, d.Strange(link)
	}
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = d.name
		attrs.MTU, _ = uplink(d.nl)
		// A fixed address: else the bridge takes the lowest of its ports', and changes it under the pods' caches.
		attrs.HardwareAddr = MACOf(gateways[0].Addr())
		if err := d.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return nil, err
		}
		if link, err = d.nl.LinkByName(d.name); err != nil {
			return nil, err
		}
	}
	if link.Attrs().Alias != d.owner {
		if err := d.nl.LinkSetAlias(link, d.owner); err != nil {
			return nil, err
		}
	}
	if link.Attrs().Group != podnet.BridgeGroup {
		if err := d.nl.LinkSetGroup(link, podnet.BridgeGroup); err != nil {
			return nil, err
		}
	}
	return link, d.rt.Do(noAutoIPv6(link.Attrs().Index))
}

// Serve sets the bridge up, with its addresses.
func (d *Bridge) Serve(link netlink.Link, gateways []netip.Prefix) error {
	if err := d.sysctls(gateways); err != nil {
		return err
	}
	if err := d.nl.LinkSetUp(link); err != nil {
		return err
	}
	return d.ensureGateways(link, gateways)
}

// Strange is the error of an interface that has the bridge's name and is none of ours.
func (d *Bridge) Strange(link netlink.Link) error {
	return fmt.Errorf("there is an interface %s (%s) that this node has not made; set network.bridge to another name, or delete it (ip link delete %s): %w",
		d.name, link.Type(), d.name, errdefs.ErrFailedPrecondition)
}

// sysctls keeps pods from posing as a router of the host. Where sysctls cannot be written the node goes on without.
func (d *Bridge) sysctls(gateways []netip.Prefix) error {
	off := "1"
	if slices.ContainsFunc(gateways, func(g netip.Prefix) bool { return g.Addr().Is6() }) {
		off = "0"
	}
	err := errors.Join(WriteIPv6(d.name, "disable_ipv6", off), WriteIPv6(d.name, "accept_ra", "0"))
	if IsReadOnly(err) {
		d.log.Warn("sysctls cannot be written: router advertisements of pods are not refused by the bridge", "error", err)
		return nil
	}
	return err
}

// ensureGateways gives the bridge its addresses, and takes away those of ranges that nobody uses any more.
func (d *Bridge) ensureGateways(link netlink.Link, want []netip.Prefix) error {
	addrs, err := addresses(d.nl, link, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	remove := func(ipv6 bool) error {
		for _, a := range addrs {
			p := PrefixOf(a.IPNet)
			if p.Addr().Is6() != ipv6 || slices.Contains(want, p) {
				continue
			}
			if err := d.nl.AddrDel(link, &a); err != nil {
				return err
			}
		}
		return nil
	}
	// The version before had the addresses with the range's length. IPv6 has an address once, so that one goes before; in IPv4 the host is not without it for a moment.
	if err := remove(true); err != nil {
		return err
	}
	for _, p := range want {
		if err := d.rt.Do(addressRequest(p, link.Attrs().Index)); err != nil {
			return err
		}
	}
	return remove(false)
}

// Remove deletes the bridge, if it is this node's.
func (d *Bridge) Remove() error {
	link, err := d.Link()
	if err != nil || link == nil || !d.Ours(link) {
		return err
	}
	return d.nl.LinkDel(link)
}

// Ours says whether the bridge carries this node's mark.
func (d *Bridge) Ours(link netlink.Link) bool { return link.Attrs().Alias == d.owner }

// Missing says what of the bridge is not as it should be.
func (d *Bridge) Missing(gateways []netip.Prefix) error {
	link, err := d.Link()
	switch {
	case err != nil:
		return fmt.Errorf("network: bridge %s: %w", d.name, err)
	case link == nil:
		return fmt.Errorf("network: bridge %s is not there: %w", d.name, errdefs.ErrUnavailable)
	case link.Type() != "bridge":
		return fmt.Errorf("network: %w", d.Strange(link))
	case link.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("network: bridge %s is down: %w", d.name, errdefs.ErrUnavailable)
	}
	addrs, err := addresses(d.nl, link, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("network: bridge %s: %w", d.name, err)
	}
	for _, g := range gateways {
		if !hasAddress(addrs, g.Addr()) {
			return fmt.Errorf("network: bridge %s has lost its address %s: %w", d.name, g.Addr(), errdefs.ErrUnavailable)
		}
	}
	return nil
}

// Has says whether the bridge, which is this interface, has the address.
func (d *Bridge) Has(link netlink.Link, a netip.Addr) (bool, error) {
	addrs, err := addresses(d.nl, link, unix.AF_UNSPEC)
	if err != nil {
		return false, fmt.Errorf("network: bridge %s: %w", d.name, err)
	}
	return hasAddress(addrs, a), nil
}

func hasAddress(addrs []netlink.Addr, want netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return PrefixOf(a.IPNet).Addr() == want })
}
