package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/failpoint"
)

// Setup connects the sandbox: loopback up, an address of each family, default routes, its host ports. It is idempotent: for
// a sandbox that is connected it returns the same, and repairs what is missing. Addresses and ports are on disk before they
// are used. When Setup fails for a sandbox that had no address before, it leaves nothing.
//
// Errors: ResourceExhausted (a range is used up), AlreadyExists (another sandbox, or the node itself, has a host port), InvalidArgument (a host
// port that cannot be), NotFound (no such namespace), FailedPrecondition (no bridge: Start comes first; or the namespace
// has an interface of that name; or the sandbox is connected with other host ports).
func (b *Bridge) Setup(ctx context.Context, req Request) (Result, error) {
	return b.setUp(ctx, req, true)
}

// setUp is Setup. Without guarded it does not wait for what is to hold for the sandbox's traffic: for one that lived before this process did.
func (b *Bridge) setUp(ctx context.Context, req Request, guarded bool) (Result, error) {
	if req.SandboxID == "" || req.NetNS == "" {
		return Result{}, fmt.Errorf("network: a sandbox id and a network namespace are needed, got %q and %q: %w",
			req.SandboxID, req.NetNS, errdefs.ErrInvalidArgument)
	}
	ports, err := canonicalPorts(req.HostPorts)
	if err != nil {
		return Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	req.HostPorts = ports
	res, err := b.setup(ctx, req, guarded)
	if errdefs.IsResourceExhausted(err) {
		// Addresses that are about to be free can be had now, and others may have become free since. This takes other sandboxes' locks, so not
		// under this one's.
		if err = b.leaving.now(); err == nil {
			res, err = b.setup(ctx, req, guarded)
		}
	}
	if err != nil {
		return Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	return res, nil
}

// Prepare does of Setup what needs no network namespace: the sandbox's addresses and ports are on disk when it returns, and the
// source guard knows it. What it cannot do is left to Setup, which tells why. Teardown gives back what nobody sets up.
func (b *Bridge) Prepare(_ context.Context, req Request) {
	ports, err := canonicalPorts(req.HostPorts)
	if err != nil || req.SandboxID == "" {
		return
	}
	defer b.locks.lock(req.SandboxID)()
	if rec, ok := b.ledger.get(req.SandboxID); ok && rec.Leaving {
		return
	}
	if b.refuses(req.SandboxID, ports) != nil {
		return
	}
	rec, _, err := b.ledger.assign(req.SandboxID, req.Pod, ports)
	if err == nil {
		b.guard.Connecting(endpointOf(req.SandboxID, rec))
		err = b.admit(rec, false) // no ports before there is somebody who answers
	}
	if err != nil {
		b.log.Debug("addresses could not be prepared", "sandbox", req.SandboxID, "error", err)
	}
}

// setup does so with the sandbox's lock.
func (b *Bridge) setup(ctx context.Context, req Request, guarded bool) (Result, error) {
	defer b.locks.lock(req.SandboxID)()
	// One that is leaving has to be gone before it can come again.
	if rec, ok := b.ledger.get(req.SandboxID); ok && rec.Leaving {
		if err := b.disconnect(req.SandboxID); err != nil {
			return Result{}, err
		}
	}
	if err := b.refuses(req.SandboxID, req.HostPorts); err != nil {
		return Result{}, err
	}
	rec, fresh, err := b.ledger.assign(req.SandboxID, req.Pod, req.HostPorts)
	if err != nil {
		return Result{}, err
	}
	if guarded {
		b.warnOfListeners(req.SandboxID, rec)
	}
	settled := b.guard.Connecting(endpointOf(req.SandboxID, rec))
	if err := failpoint.Hit("network/setup/assigned"); err != nil {
		return Result{}, err
	}
	res, err := b.attach(req.SandboxID, rec, req.NetNS)
	if err == nil && guarded {
		err = settled(ctx)
	}
	if err == nil {
		return res, nil
	}
	if fresh {
		err = errors.Join(err, b.disconnect(req.SandboxID))
	}
	return Result{}, err
}

// refuses is why a sandbox cannot have these host ports, unless it has them already: then they lead nowhere, and it lives on.
func (b *Bridge) refuses(sandboxID string, ports []HostPort) error {
	if _, known := b.ledger.get(sandboxID); known {
		return nil
	}
	return refuseOwn(ports, b.cfg.OwnPorts)
}

// attach does what the lease says. It is called with the sandbox's lock held.
func (b *Bridge) attach(sandboxID string, rec lease, path string) (Result, error) {
	index, has, err := b.connect(rec, path, func() error {
		if err := failpoint.Hit("network/setup/connected"); err != nil {
			return err
		}
		return b.admit(rec, true)
	})
	if err != nil {
		return Result{}, err
	}
	b.setIndex(sandboxID, index, path)
	if err := failpoint.Hit("network/setup/mapped"); err != nil {
		return Result{}, err
	}
	res := Result{Gateway: has[0].Gateway, Interface: containerInterface}
	for _, a := range has {
		res.IPs = append(res.IPs, a.Address.Addr())
	}
	return res, nil
}

// admit lets the sandbox send with its addresses, unless Prepare has done that, and with ports gives it its host ports, in one
// transaction.
func (b *Bridge) admit(rec lease, ports bool) error {
	err := b.withFirewall(func(fw *firewall) error {
		var reqs []request
		if ports {
			reqs = fw.portRequests(rec, true)
		}
		had, known := b.elementsOf[rec.Interface]
		if !known {
			reqs = append(reqs, fw.sourceRequests(true, rec)...)
		}
		if err := fw.change(reqs); err != nil {
			return err
		}
		b.elementsOf[rec.Interface] = had || ports
		return nil
	})
	if err != nil || !ports || len(rec.HostPorts) == 0 {
		return err
	}
	return b.forgetFlows(rec)
}

// dismiss takes what the source guard has for sandboxes whose interfaces are gone. What cannot be taken away does not matter:
// it is about names of interfaces that nobody has.
func (b *Bridge) dismiss(recs ...lease) {
	for part := range slices.Chunk(recs, elementsInMessage/5) {
		err := b.withFirewall(func(fw *firewall) error {
			for _, rec := range part {
				delete(b.elementsOf, rec.Interface)
			}
			if !fw.guards() {
				return nil
			}
			// Added first, so that taking them away cannot fail.
			return fw.send(append(fw.sourceRequests(true, part...), fw.sourceRequests(false, part...)...))
		})
		if err != nil {
			b.log.Debug("the source guard keeps elements of sandboxes that are gone, until it is written anew", "error", err)
		}
	}
}

// unmapPorts takes the host ports of sandboxes away that leave: of many with the whole table, which is one transaction.
func (b *Bridge) unmapPorts(recs map[string]lease) error {
	var with []lease
	for _, rec := range recs {
		if len(rec.HostPorts) > 0 {
			with = append(with, rec)
		}
	}
	if len(with) == 0 {
		return nil
	}
	err := b.withFirewall(func(fw *firewall) error {
		if len(with) == 1 {
			return fw.change(fw.portRequests(with[0], false))
		}
		return fw.install()
	})
	if err != nil {
		return err
	}
	return b.forgetFlows(with...)
}

// Teardown disconnects the sandbox: its host ports are free when Teardown returns. Its addresses are free when its interface
// is gone, which happens when its network namespace is removed (the caller's next step), or else a second later. It is
// idempotent.
func (b *Bridge) Teardown(_ context.Context, sandboxID string) error {
	unlock := b.locks.lock(sandboxID)
	defer unlock()
	recs, err := b.leave(sandboxID)
	rec, had := recs[sandboxID]
	if err == nil && had {
		err = b.leaving.add(sandboxID, rec.Interface)
	}
	if err == nil && !had {
		// What has no record has no address, but it may have an interface.
		err = b.deleteLinks([]string{hostInterface(b.name, sandboxID)})
	}
	if err != nil {
		return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
	}
	return nil
}

// leave takes down that the sandboxes leave, and takes their host ports away. It is called with their locks held.
func (b *Bridge) leave(sandboxIDs ...string) (map[string]lease, error) {
	recs, err := b.ledger.leave(sandboxIDs...)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit("network/teardown/leaving"); err != nil {
		return nil, err
	}
	for id := range recs {
		b.setIndex(id, 0, "")
	}
	if err := b.unmapPorts(recs); err != nil {
		return nil, err
	}
	return recs, failpoint.Hit("network/teardown/unmapped")
}

// disconnect does all of Teardown at once, and is called with the sandbox's lock held. The addresses are freed last: until
// the interface is gone they are in use.
func (b *Bridge) disconnect(sandboxID string) error {
	recs, err := b.leave(sandboxID)
	if err != nil {
		return err
	}
	name := hostInterface(b.name, sandboxID)
	if err := b.deleteLinks([]string{name}); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := failpoint.Hit("network/teardown/disconnected"); err != nil {
		return err
	}
	b.leaving.forget(name)
	return b.release(recs)
}

// release frees what sandboxes have whose interfaces are gone.
func (b *Bridge) release(recs map[string]lease) error {
	b.forgetConnections(recs)
	if err := b.ledger.release(slices.Collect(maps.Keys(recs))...); err != nil {
		return err
	}
	b.dismiss(slices.Collect(maps.Values(recs))...)
	b.guard.Disconnected(slices.Collect(maps.Keys(recs))...)
	return nil
}

// setIndex notes the index of the host's end; 0: it has none any more.
func (b *Bridge) setIndex(sandboxID string, index int, path string) {
	b.indexMu.Lock()
	defer b.indexMu.Unlock()
	if index == 0 {
		delete(b.indexes, sandboxID)
		delete(b.spaces, sandboxID)
	} else {
		b.indexes[sandboxID], b.spaces[sandboxID] = index, path
	}
}

// sandboxLocks serializes the operations on one sandbox.
type sandboxLocks struct {
	mu    sync.Mutex
	locks map[string]*sandboxLock
}

type sandboxLock struct {
	sync.Mutex
	refs int // guarded by sandboxLocks.mu
}

func (s *sandboxLocks) lock(id string) (unlock func()) {
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		if s.locks == nil {
			s.locks = map[string]*sandboxLock{}
		}
		l = &sandboxLock{}
		s.locks[id] = l
	}
	l.refs++
	s.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(s.locks, id)
		}
	}
}
