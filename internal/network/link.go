package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// link returns the bridge, or nil when there is none.
func (b *Bridge) link() (netlink.Link, error) {
	link, err := b.nl.LinkByName(b.name)
	if isNoLink(err) {
		return nil, nil
	}
	return link, err
}

func isNoLink(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone)
}

// ensureBridge makes the bridge, or makes the one that is there as it should be.
func (b *Bridge) ensureBridge() error {
	link, err := b.link()
	if err != nil {
		return err
	}
	if link != nil && link.Type() != "bridge" {
		return b.strange(link)
	}
	gateways := b.gateways()
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = b.name
		attrs.MTU, _ = b.hostMTU()
		// A fixed address: else the bridge takes the lowest of its ports', and changes it under the pods' caches.
		attrs.HardwareAddr = macOf(gateways[0].Addr())
		if err := b.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return err
		}
		if link, err = b.nl.LinkByName(b.name); err != nil {
			return err
		}
	}
	if link.Attrs().Alias != b.owner {
		if err := b.nl.LinkSetAlias(link, b.owner); err != nil {
			return err
		}
	}
	if link.Attrs().Group != BridgeGroup {
		if err := b.nl.LinkSetGroup(link, BridgeGroup); err != nil {
			return err
		}
	}
	if err := b.rt.Do(noAutoIPv6(link.Attrs().Index)); err != nil {
		return err
	}
	if err := b.followUplink(); err != nil {
		return err
	}
	if err := b.bridgeSysctls(gateways); err != nil {
		return err
	}
	if err := b.nl.LinkSetUp(link); err != nil {
		return err
	}
	if err := b.ensureGateways(link, gateways); err != nil {
		return err
	}
	return b.closeRanges(b.servedRanges())
}

// strange is the error of an interface that has the bridge's name and is none of ours.
func (b *Bridge) strange(link netlink.Link) error {
	return fmt.Errorf("there is an interface %s (%s) that this node has not made; set network.bridge to another name, or delete it (ip link delete %s): %w",
		b.name, link.Type(), b.name, errdefs.ErrFailedPrecondition)
}

// bridgeSysctls keeps pods from posing as a router of the host. Where sysctls cannot be written the node goes on without.
func (b *Bridge) bridgeSysctls(gateways []netip.Prefix) error {
	off := "1"
	if slices.ContainsFunc(gateways, func(g netip.Prefix) bool { return g.Addr().Is6() }) {
		off = "0"
	}
	err := errors.Join(writeIPv6(b.name, "disable_ipv6", off), writeIPv6(b.name, "accept_ra", "0"))
	if isReadOnly(err) {
		b.log.Warn("sysctls cannot be written: router advertisements of pods are not refused by the bridge", "error", err)
		return nil
	}
	return err
}

// gateways are the bridge's addresses: that of each range that is configured or in use, by itself.
func (b *Bridge) gateways() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range b.servedRanges() {
		out = append(out, hostPrefix(gatewayOf(r)))
	}
	return out
}

// Gateways are the addresses of the host on the bridge in the ranges that new sandboxes get their addresses from. It need not be made yet.
func (b *Bridge) Gateways() (all []netip.Addr) {
	for _, r := range b.ledger.podRanges() {
		all = append(all, gatewayOf(r))
	}
	return all
}

// ensureGateways gives the bridge its addresses, and takes away those of ranges that nobody uses any more.
func (b *Bridge) ensureGateways(link netlink.Link, want []netip.Prefix) error {
	addrs, err := addresses(b.nl, link, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	remove := func(ipv6 bool) error {
		for _, a := range addrs {
			p := prefixOf(a.IPNet)
			if p.Addr().Is6() != ipv6 || slices.Contains(want, p) {
				continue
			}
			if err := b.nl.AddrDel(link, &a); err != nil {
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
		if err := b.rt.Do(addressRequest(p, link.Attrs().Index)); err != nil {
			return err
		}
	}
	return remove(false)
}

// hostMTU is the MTU of the interface of the default route, so that a pod's packets fit without being split, with the index of that interface; 0: there is none.
func (b *Bridge) hostMTU() (mtu, uplink int) {
	const ethernet = 1500
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rts, err := routes(b.nl, family)
		if err != nil {
			continue
		}
		for _, r := range rts {
			if !isDefault(r) || r.LinkIndex == 0 {
				continue
			}
			if link, err := b.nl.LinkByIndex(r.LinkIndex); err == nil {
				return link.Attrs().MTU, r.LinkIndex
			}
		}
	}
	return ethernet, 0
}

// look says what of the host is not as it should be.
func (b *Bridge) look() error {
	link, err := b.link()
	switch {
	case err != nil:
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	case link == nil:
		return fmt.Errorf("network: bridge %s is not there: %w", b.name, errdefs.ErrUnavailable)
	case link.Type() != "bridge":
		return fmt.Errorf("network: %w", b.strange(link))
	case link.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("network: bridge %s is down: %w", b.name, errdefs.ErrUnavailable)
	}
	addrs, err := addresses(b.nl, link, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	}
	for _, g := range b.gateways() {
		if !hasAddress(addrs, g.Addr()) {
			return fmt.Errorf("network: bridge %s has lost its address %s: %w", b.name, g.Addr(), errdefs.ErrUnavailable)
		}
	}
	for _, r := range b.servedRanges() {
		file := ip6ForwardFile
		if r.Addr().Is4() {
			file = ipForwardFile
		}
		switch on, err := forwarding(file); {
		case err != nil:
			return err
		case !on:
			return fmt.Errorf("network: %s is 0; something switched it off: %w", file, errdefs.ErrUnavailable)
		}
	}
	return b.withFirewall((*firewall).verify)
}

// reattach makes the ways to the sandboxes again, after the bridge was made anew: without the gateway's address the kernel has taken them away.
func (b *Bridge) reattach() error {
	bridge, found, err := b.rt.link(b.name)
	if err != nil || !found {
		return err
	}
	var errs []error
	for id, rec := range b.ledger.all() {
		if rec.Leaving {
			continue
		}
		if err := b.reattachOne(rec, bridge); err != nil {
			errs = append(errs, fmt.Errorf("network of sandbox %s: interface %s: %w", id, rec.Interface, err))
		}
	}
	return errors.Join(errs...)
}

// reattachOne does of connect what needs no way into the sandbox.
func (b *Bridge) reattachOne(rec lease, bridge linkInfo) error {
	host, found, err := b.rt.link(rec.Interface)
	if err == nil && found {
		_, err = b.prepareEnd(rec, host, bridge, false)
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
