package bridge

import (
	"fmt"
	"maps"
	"slices"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
)

// tearDown is Bridge.Teardown.
func (s *sandboxes) tearDown(sandboxID ids.SandboxID) error {
	unlock := s.locks.Wait(sandboxID)
	defer unlock()
	recs, err := s.leave(sandboxID)
	rec, had := recs[sandboxID]
	if err == nil && had {
		err = s.leaving.add(sandboxID, rec.Interface)
	}
	if err == nil && !had {
		// What has no record has no address, but it may have an interface.
		err = s.links.Delete([]string{lease.HostInterface(s.bridge, sandboxID)})
	}
	if err != nil {
		return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
	}
	return nil
}

// drop disconnects sandboxes at once, all interfaces together. They are given in order, for their locks.
func (s *sandboxes) drop(sandboxIDs []ids.SandboxID) error {
	for _, id := range sandboxIDs {
		defer s.locks.Wait(id)()
	}
	recs, err := s.leave(sandboxIDs...)
	if err != nil {
		return err
	}
	var names []string
	for _, rec := range recs {
		names = append(names, rec.Interface)
	}
	if err := s.links.Delete(names); err != nil {
		return err
	}
	for _, name := range names {
		s.leaving.forget(name)
	}
	return s.release(recs)
}

// leave takes down that the sandboxes leave, and takes their host ports away. It is called with their locks held.
func (s *sandboxes) leave(sandboxIDs ...ids.SandboxID) (map[ids.SandboxID]lease.Lease, error) {
	recs, err := s.ledger.Leave(sandboxIDs...)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit("network/teardown/leaving"); err != nil {
		return nil, err
	}
	for id := range recs {
		s.places.forget(id)
	}
	if err := s.unmapPorts(recs); err != nil {
		return nil, err
	}
	return recs, failpoint.Hit("network/teardown/unmapped")
}

// unmapPorts takes the host ports of sandboxes away that leave.
func (s *sandboxes) unmapPorts(recs map[ids.SandboxID]lease.Lease) error {
	var with []lease.Lease
	for _, rec := range recs {
		if len(rec.HostPorts) > 0 {
			with = append(with, rec)
		}
	}
	if len(with) == 0 {
		return nil
	}
	if err := s.rules.Unmap(with...); err != nil {
		return err
	}
	return s.flows.forgetPorts(with...)
}

// disconnect does all of Teardown at once, and is called with the sandbox's lock held. The addresses are freed last: until
// the interface is gone they are in use.
func (s *sandboxes) disconnect(sandboxID ids.SandboxID) error {
	recs, err := s.leave(sandboxID)
	if err != nil {
		return err
	}
	name := lease.HostInterface(s.bridge, sandboxID)
	if err := s.links.Delete([]string{name}); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := failpoint.Hit("network/teardown/disconnected"); err != nil {
		return err
	}
	s.leaving.forget(name)
	return s.release(recs)
}

// release frees what sandboxes have whose interfaces are gone.
func (s *sandboxes) release(recs map[ids.SandboxID]lease.Lease) error {
	s.flows.forgetSandboxes(recs)
	if err := s.ledger.Release(slices.Collect(maps.Keys(recs))...); err != nil {
		return err
	}
	s.rules.Dismiss(slices.Collect(maps.Values(recs))...)
	s.guard.Disconnected(slices.Collect(maps.Keys(recs))...)
	return nil
}

// end implements departed.
func (s *sandboxes) end(name string) (index int, found bool, err error) {
	info, found, err := s.links.Link(name)
	return info.Index, found, err
}

// lock implements departed.
func (s *sandboxes) lock(sandboxID ids.SandboxID) (unlock func()) { return s.locks.Wait(sandboxID) }

// left implements departed.
func (s *sandboxes) left(sandboxID ids.SandboxID) (rec lease.Lease, ok bool) {
	rec, ok = s.ledger.Get(sandboxID)
	return rec, ok && rec.Leaving
}

// clear implements departed.
func (s *sandboxes) clear(interfaces []string, recs map[ids.SandboxID]lease.Lease) error {
	if err := s.links.Delete(interfaces); err != nil {
		return err
	}
	return s.release(recs)
}
