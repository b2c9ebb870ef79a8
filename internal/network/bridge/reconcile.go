package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
)

// reconcile is Bridge.Reconcile.
func (s *sandboxes) reconcile(ctx context.Context, live map[ids.SandboxID]string) error {
	var gone []ids.SandboxID
	for _, id := range s.ledger.Sandboxes() {
		if _, ok := live[id]; !ok {
			s.log.InfoContext(ctx, "freeing the address of a sandbox that is gone", "sandbox", id)
			gone = append(gone, id)
		}
	}
	errs := []error{s.drop(gone)}
	for id, path := range live {
		if path != "" {
			errs = append(errs, s.restore(ctx, id, path))
		} else {
			errs = append(errs, s.restoreEnd(id))
		}
	}
	// Start has mapped all host ports. A crash may have come before the flows of a port that was just given were forgotten.
	errs = append(errs, s.flows.forgetPorts(slices.Collect(maps.Values(s.ledger.All()))...))
	return errors.Join(append(errs, s.links.Pairs.Remove(s.ledger.Interfaces()))...)
}

// restoreEnd does so for a sandbox into which there is no way: the host's side only.
func (s *sandboxes) restoreEnd(sandboxID ids.SandboxID) error {
	defer s.locks.Wait(sandboxID)()
	rec, ok := s.ledger.Get(sandboxID)
	bridge, found, err := s.links.Link(s.bridge)
	if ok && found && !rec.Leaving {
		err = s.links.Pairs.Reattach(rec, bridge)
	}
	if err != nil {
		return fmt.Errorf("network of sandbox %s: interface %s: %w", sandboxID, rec.Interface, err)
	}
	return nil
}

// restore connects a live sandbox again.
func (s *sandboxes) restore(ctx context.Context, sandboxID ids.SandboxID, path string) error {
	rec, ok := s.ledger.Get(sandboxID)
	meanwhile := func() error { return nil } // Start has written what the ledger knew then
	if !ok {
		meanwhile = func() error { return s.admit(rec, true) }
		if err := s.adopt(ctx, sandboxID, path); err != nil {
			return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
		}
		if rec, ok = s.ledger.Get(sandboxID); ok {
			s.guard.Connecting(endpointOf(sandboxID, rec))
		}
	}
	if !ok || rec.Leaving {
		_, err := s.setUp(ctx, network.Request{SandboxID: sandboxID, NetNS: path}, false)
		return err
	}
	defer s.locks.Wait(sandboxID)()
	index, _, err := s.links.Pairs.Connect(rec, path, meanwhile)
	if err != nil {
		return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
	}
	s.places.set(sandboxID, index, path)
	return nil
}

// adopt writes down the addresses that a sandbox without a record has. One that has none gets some from Setup later.
func (s *sandboxes) adopt(ctx context.Context, sandboxID ids.SandboxID, path string) error {
	found, err := links.Find(path)
	if err != nil || len(found) == 0 {
		return err
	}
	rec := lease.Lease{Interface: lease.HostInterface(s.bridge, sandboxID)}
	for _, f := range found {
		r := rangeOf(f.Address, f.Gateway, s.ledger.UsedRanges())
		rec.Addresses = append(rec.Addresses, lease.Address{Address: netip.PrefixFrom(f.Address.Addr(), r.Bits()), Gateway: lease.GatewayOf(r)})
	}
	s.log.WarnContext(ctx, "a sandbox had addresses without a record; they are written down again, host ports are lost", "sandbox", sandboxID, "addresses", rec.Addresses)
	return s.ledger.Adopt(sandboxID, rec)
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
