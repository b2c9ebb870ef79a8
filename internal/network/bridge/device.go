package bridge

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

	"monopod.dev/monopod/internal/network/rules"
)

// device is the bridge itself, to which nothing is connected but the host's addresses in the ranges.
type device struct {
	name  string
	owner string // its alias: which node made it
	nl    *netlink.Handle
	rt    *rtnl
	log   *slog.Logger
}

// link returns the bridge, or nil when there is none.
func (d *device) link() (netlink.Link, error) {
	link, err := d.nl.LinkByName(d.name)
	if isNoLink(err) {
		return nil, nil
	}
	return link, err
}

func isNoLink(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone)
}

// ensure makes the bridge, or makes the one that is there as it should be, but for its addresses. A new one has the first gateway's hardware address.
func (d *device) ensure(gateways []netip.Prefix) (netlink.Link, error) {
	link, err := d.link()
	if err != nil {
		return nil, err
	}
	if link != nil && link.Type() != "bridge" {
		return nil, d.strange(link)
	}
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = d.name
		attrs.MTU, _ = hostMTU(d.nl)
		// A fixed address: else the bridge takes the lowest of its ports', and changes it under the pods' caches.
		attrs.HardwareAddr = macOf(gateways[0].Addr())
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
	if link.Attrs().Group != rules.BridgeGroup {
		if err := d.nl.LinkSetGroup(link, rules.BridgeGroup); err != nil {
			return nil, err
		}
	}
	return link, d.rt.Do(noAutoIPv6(link.Attrs().Index))
}

// serve sets the bridge up, with its addresses.
func (d *device) serve(link netlink.Link, gateways []netip.Prefix) error {
	if err := d.sysctls(gateways); err != nil {
		return err
	}
	if err := d.nl.LinkSetUp(link); err != nil {
		return err
	}
	return d.ensureGateways(link, gateways)
}

// strange is the error of an interface that has the bridge's name and is none of ours.
func (d *device) strange(link netlink.Link) error {
	return fmt.Errorf("there is an interface %s (%s) that this node has not made; set network.bridge to another name, or delete it (ip link delete %s): %w",
		d.name, link.Type(), d.name, errdefs.ErrFailedPrecondition)
}

// sysctls keeps pods from posing as a router of the host. Where sysctls cannot be written the node goes on without.
func (d *device) sysctls(gateways []netip.Prefix) error {
	off := "1"
	if slices.ContainsFunc(gateways, func(g netip.Prefix) bool { return g.Addr().Is6() }) {
		off = "0"
	}
	err := errors.Join(writeIPv6(d.name, "disable_ipv6", off), writeIPv6(d.name, "accept_ra", "0"))
	if isReadOnly(err) {
		d.log.Warn("sysctls cannot be written: router advertisements of pods are not refused by the bridge", "error", err)
		return nil
	}
	return err
}

// ensureGateways gives the bridge its addresses, and takes away those of ranges that nobody uses any more.
func (d *device) ensureGateways(link netlink.Link, want []netip.Prefix) error {
	addrs, err := addresses(d.nl, link, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	remove := func(ipv6 bool) error {
		for _, a := range addrs {
			p := prefixOf(a.IPNet)
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

// remove deletes the bridge, if it is this node's.
func (d *device) remove() error {
	link, err := d.link()
	if err != nil || link == nil || !d.ours(link) {
		return err
	}
	return d.nl.LinkDel(link)
}

// ours says whether the bridge carries this node's mark.
func (d *device) ours(link netlink.Link) bool { return link.Attrs().Alias == d.owner }

// missing says what of the bridge is not as it should be.
func (d *device) missing(gateways []netip.Prefix) error {
	link, err := d.link()
	switch {
	case err != nil:
		return fmt.Errorf("network: bridge %s: %w", d.name, err)
	case link == nil:
		return fmt.Errorf("network: bridge %s is not there: %w", d.name, errdefs.ErrUnavailable)
	case link.Type() != "bridge":
		return fmt.Errorf("network: %w", d.strange(link))
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

// hostMTU is the MTU of the interface of the default route, so that a pod's packets fit without being split, with the index of that interface; 0: there is none.
func hostMTU(h *netlink.Handle) (mtu, uplink int) {
	const ethernet = 1500
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rts, err := routes(h, family)
		if err != nil {
			continue
		}
		for _, r := range rts {
			if !isDefault(r) || r.LinkIndex == 0 {
				continue
			}
			if link, err := h.LinkByIndex(r.LinkIndex); err == nil {
				return link.Attrs().MTU, r.LinkIndex
			}
		}
	}
	return ethernet, 0
}
