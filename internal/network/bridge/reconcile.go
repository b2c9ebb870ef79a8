package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
)

// Reconcile makes the ledger and the kernel agree with the sandboxes that live: sandboxID to the path of its network
// namespace. Addresses and ports of others are freed and their interfaces deleted; a live one is connected again as far as
// it is not, and one without a record keeps the addresses that its namespace shows. One whose path is empty, because its
// namespace is not to be found and processes may be in it all the same, keeps what it has. It goes on after an error and
// returns all.
func (b *Bridge) Reconcile(ctx context.Context, live map[string]string) error {
	var gone []string
	for _, id := range b.ledger.Sandboxes() {
		if _, ok := live[id]; !ok {
			b.log.InfoContext(ctx, "freeing the address of a sandbox that is gone", "sandbox", id)
			gone = append(gone, id)
		}
	}
	errs := []error{b.drop(gone)}
	for id, path := range live {
		if path != "" {
			errs = append(errs, b.restore(ctx, id, path))
		} else {
			errs = append(errs, b.restoreEnd(id))
		}
	}
	// Start has mapped all host ports. A crash may have come before the flows of a port that was just given were forgotten.
	errs = append(errs, b.flows.forgetPorts(slices.Collect(maps.Values(b.ledger.All()))...))
	return errors.Join(append(errs, b.pairs.remove(b.ledger.Interfaces()))...)
}

// drop disconnects sandboxes at once, all interfaces together. They are given in order, for their locks.
func (b *Bridge) drop(sandboxIDs []string) error {
	for _, id := range sandboxIDs {
		defer b.locks.Wait(id)()
	}
	recs, err := b.leave(sandboxIDs...)
	if err != nil {
		return err
	}
	var names []string
	for _, rec := range recs {
		names = append(names, rec.Interface)
	}
	if err := b.rt.deleteLinks(names); err != nil {
		return err
	}
	for _, name := range names {
		b.leaving.forget(name)
	}
	return b.release(recs)
}

// restoreEnd does so for a sandbox into which there is no way: the host's side only.
func (b *Bridge) restoreEnd(sandboxID string) error {
	defer b.locks.Wait(sandboxID)()
	rec, ok := b.ledger.Get(sandboxID)
	bridge, found, err := b.rt.link(b.name)
	if ok && found && !rec.Leaving {
		err = b.pairs.reattach(rec, bridge)
	}
	if err != nil {
		return fmt.Errorf("network of sandbox %s: interface %s: %w", sandboxID, rec.Interface, err)
	}
	return nil
}

// restore connects a live sandbox again.
func (b *Bridge) restore(ctx context.Context, sandboxID, path string) error {
	rec, ok := b.ledger.Get(sandboxID)
	meanwhile := func() error { return nil } // Start has written what the ledger knew then
	if !ok {
		meanwhile = func() error { return b.admit(rec, true) }
		if err := b.adopt(ctx, sandboxID, path); err != nil {
			return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
		}
		if rec, ok = b.ledger.Get(sandboxID); ok {
			b.guard.Connecting(endpointOf(sandboxID, rec))
		}
	}
	if !ok || rec.Leaving {
		_, err := b.setUp(ctx, network.Request{SandboxID: sandboxID, NetNS: path}, false)
		return err
	}
	defer b.locks.Wait(sandboxID)()
	index, _, err := b.pairs.connect(rec, path, meanwhile)
	if err != nil {
		return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
	}
	b.places.set(sandboxID, index, path)
	return nil
}

// adopt writes down the addresses that a sandbox without a record has. One that has none gets some from Setup later.
func (b *Bridge) adopt(ctx context.Context, sandboxID, path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(containerInterface)
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return err
	}
	rec := lease.Lease{Interface: lease.HostInterface(b.name, sandboxID)}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addrs, err := addresses(inside, link, family)
		if err != nil {
			return err
		}
		rts, err := routes(inside, family)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if have := prefixOf(a.IPNet); have.IsValid() && !have.Addr().IsLinkLocalUnicast() {
				r := rangeOf(have, gatewayIn(rts), b.ledger.UsedRanges())
				rec.Addresses = append(rec.Addresses, lease.Address{Address: netip.PrefixFrom(have.Addr(), r.Bits()), Gateway: lease.GatewayOf(r)})
				break // one of a family is ours
			}
		}
	}
	if len(rec.Addresses) == 0 {
		return nil
	}
	b.log.WarnContext(ctx, "a sandbox had addresses without a record; they are written down again, host ports are lost", "sandbox", sandboxID, "addresses", rec.Addresses)
	return b.ledger.Adopt(sandboxID, rec)
}

// gatewayIn is the gateway of the default route among these.
func gatewayIn(rts []netlink.Route) netip.Addr {
	for _, r := range rts {
		if gw, ok := netip.AddrFromSlice(r.Gw); ok && isDefault(r) {
			return gw.Unmap()
		}
	}
	return netip.Addr{}
}

// rangeOf is the range that an address is from which a sandbox has: one that is known, or else the smallest that has the sandbox's gateway. It is pure.
func rangeOf(have netip.Prefix, gateway netip.Addr, known []netip.Prefix) netip.Prefix {
	for _, r := range known {
		if r.Contains(have.Addr()) {
			return r
		}
	}
	for bits := have.Addr().BitLen() - 1; bits > 0; bits-- {
		if r := netip.PrefixFrom(have.Addr(), bits).Masked(); r.Contains(gateway) && lease.GatewayOf(r) == gateway {
			return r
		}
	}
	return have.Masked()
}
