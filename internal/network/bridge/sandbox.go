package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
)

// Setup connects the sandbox: loopback up, an address of each family, default routes, its host ports. It is idempotent: for
// a sandbox that is connected it returns the same, and repairs what is missing. Addresses and ports are on disk before they
// are used. When Setup fails for a sandbox that had no address before, it leaves nothing.
//
// Errors: ResourceExhausted (a range is used up), AlreadyExists (another sandbox, or the node itself, has a host port), InvalidArgument (a host
// port that cannot be), NotFound (no such namespace), FailedPrecondition (no bridge: Start comes first; or the namespace
// has an interface of that name; or the sandbox is connected with other host ports).
func (b *Bridge) Setup(ctx context.Context, req network.Request) (network.Result, error) {
	return b.setUp(ctx, req, true)
}

// setUp is Setup. Without guarded it does not wait for what is to hold for the sandbox's traffic: for one that lived before this process did.
func (b *Bridge) setUp(ctx context.Context, req network.Request, guarded bool) (network.Result, error) {
	if req.SandboxID == "" || req.NetNS == "" {
		return network.Result{}, fmt.Errorf("network: a sandbox id and a network namespace are needed, got %q and %q: %w",
			req.SandboxID, req.NetNS, errdefs.ErrInvalidArgument)
	}
	ports, err := lease.CanonicalPorts(req.HostPorts)
	if err != nil {
		return network.Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
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
		return network.Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	return res, nil
}

// Prepare does of Setup what needs no network namespace: the sandbox's addresses and ports are on disk when it returns, and the
// source guard knows it. What it cannot do is left to Setup, which tells why. Teardown gives back what nobody sets up.
func (b *Bridge) Prepare(_ context.Context, req network.Request) {
	ports, err := lease.CanonicalPorts(req.HostPorts)
	if err != nil || req.SandboxID == "" {
		return
	}
	defer b.locks.Wait(req.SandboxID)()
	if rec, ok := b.ledger.Get(req.SandboxID); ok && rec.Leaving {
		return
	}
	if b.refuses(req.SandboxID, ports) != nil {
		return
	}
	rec, _, err := b.ledger.Assign(req.SandboxID, req.Pod, ports)
	if err == nil {
		b.guard.Connecting(endpointOf(req.SandboxID, rec))
		err = b.admit(rec, false) // no ports before there is somebody who answers
	}
	if err != nil {
		b.log.Debug("addresses could not be prepared", "sandbox", req.SandboxID, "error", err)
	}
}

// setup does so with the sandbox's lock.
func (b *Bridge) setup(ctx context.Context, req network.Request, guarded bool) (network.Result, error) {
	defer b.locks.Wait(req.SandboxID)()
	// One that is leaving has to be gone before it can come again.
	if rec, ok := b.ledger.Get(req.SandboxID); ok && rec.Leaving {
		if err := b.disconnect(req.SandboxID); err != nil {
			return network.Result{}, err
		}
	}
	if err := b.refuses(req.SandboxID, req.HostPorts); err != nil {
		return network.Result{}, err
	}
	rec, fresh, err := b.ledger.Assign(req.SandboxID, req.Pod, req.HostPorts)
	if err != nil {
		return network.Result{}, err
	}
	if guarded {
		b.warnOfListeners(req.SandboxID, rec)
	}
	settled := b.guard.Connecting(endpointOf(req.SandboxID, rec))
	if err := failpoint.Hit("network/setup/assigned"); err != nil {
		return network.Result{}, err
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
	return network.Result{}, err
}

// refuses is why a sandbox cannot have these host ports, unless it has them already: then they lead nowhere, and it lives on.
func (b *Bridge) refuses(sandboxID string, ports []network.HostPort) error {
	if _, known := b.ledger.Get(sandboxID); known {
		return nil
	}
	return network.TakenBy(ports, b.cfg.OwnPorts)
}

// attach does what the lease says. It is called with the sandbox's lock held.
func (b *Bridge) attach(sandboxID string, rec lease.Lease, path string) (network.Result, error) {
	index, has, err := b.pairs.connect(rec, path, func() error {
		if err := failpoint.Hit("network/setup/connected"); err != nil {
			return err
		}
		return b.admit(rec, true)
	})
	if err != nil {
		return network.Result{}, err
	}
	b.places.set(sandboxID, index, path)
	if err := failpoint.Hit("network/setup/mapped"); err != nil {
		return network.Result{}, err
	}
	res := network.Result{Gateway: has[0].Gateway, Interface: containerInterface}
	for _, a := range has {
		res.IPs = append(res.IPs, a.Address.Addr())
	}
	return res, nil
}

// admit lets the sandbox send with its addresses, and with ports gives it its host ports.
func (b *Bridge) admit(rec lease.Lease, ports bool) error {
	if err := b.rules.Admit(rec, ports); err != nil || !ports || len(rec.HostPorts) == 0 {
		return err
	}
	return b.flows.forgetPorts(rec)
}

// unmapPorts takes the host ports of sandboxes away that leave.
func (b *Bridge) unmapPorts(recs map[string]lease.Lease) error {
	var with []lease.Lease
	for _, rec := range recs {
		if len(rec.HostPorts) > 0 {
			with = append(with, rec)
		}
	}
	if len(with) == 0 {
		return nil
	}
	if err := b.rules.Unmap(with...); err != nil {
		return err
	}
	return b.flows.forgetPorts(with...)
}

// Teardown disconnects the sandbox: its host ports are free when Teardown returns. Its addresses are free when its interface
// is gone, which happens when its network namespace is removed (the caller's next step), or else a second later. It is
// idempotent.
func (b *Bridge) Teardown(_ context.Context, sandboxID string) error {
	unlock := b.locks.Wait(sandboxID)
	defer unlock()
	recs, err := b.leave(sandboxID)
	rec, had := recs[sandboxID]
	if err == nil && had {
		err = b.leaving.add(sandboxID, rec.Interface)
	}
	if err == nil && !had {
		// What has no record has no address, but it may have an interface.
		err = b.rt.deleteLinks([]string{lease.HostInterface(b.name, sandboxID)})
	}
	if err != nil {
		return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
	}
	return nil
}

// leave takes down that the sandboxes leave, and takes their host ports away. It is called with their locks held.
func (b *Bridge) leave(sandboxIDs ...string) (map[string]lease.Lease, error) {
	recs, err := b.ledger.Leave(sandboxIDs...)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit("network/teardown/leaving"); err != nil {
		return nil, err
	}
	for id := range recs {
		b.places.forget(id)
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
	name := lease.HostInterface(b.name, sandboxID)
	if err := b.rt.deleteLinks([]string{name}); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := failpoint.Hit("network/teardown/disconnected"); err != nil {
		return err
	}
	b.leaving.forget(name)
	return b.release(recs)
}

// release frees what sandboxes have whose interfaces are gone.
func (b *Bridge) release(recs map[string]lease.Lease) error {
	b.flows.forgetSandboxes(recs)
	if err := b.ledger.Release(slices.Collect(maps.Keys(recs))...); err != nil {
		return err
	}
	b.rules.Dismiss(slices.Collect(maps.Values(recs))...)
	b.guard.Disconnected(slices.Collect(maps.Keys(recs))...)
	return nil
}

// end implements departed.
func (b *Bridge) end(name string) (index int, found bool, err error) {
	info, found, err := b.rt.link(name)
	return info.index, found, err
}

// lock implements departed.
func (b *Bridge) lock(sandboxID string) (unlock func()) { return b.locks.Wait(sandboxID) }

// left implements departed.
func (b *Bridge) left(sandboxID string) (rec lease.Lease, ok bool) {
	rec, ok = b.ledger.Get(sandboxID)
	return rec, ok && rec.Leaving
}

// clear implements departed.
func (b *Bridge) clear(interfaces []string, recs map[string]lease.Lease) error {
	if err := b.rt.deleteLinks(interfaces); err != nil {
		return err
	}
	return b.release(recs)
}
