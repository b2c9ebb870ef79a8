package bridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/host/sockdiag"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
)

// setUp is Bridge.Setup. Without guarded it does not wait for what is to hold for the sandbox's traffic: for one that lived before this process did.
func (s *sandboxes) setUp(ctx context.Context, req network.Request, guarded bool) (network.Result, error) {
	if req.SandboxID == "" || req.NetNS == "" {
		return network.Result{}, fmt.Errorf("network: a sandbox id and a network namespace are needed, got %q and %q: %w",
			req.SandboxID, req.NetNS, errdefs.ErrInvalidArgument)
	}
	ports, err := lease.CanonicalPorts(req.HostPorts)
	if err != nil {
		return network.Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	req.HostPorts = ports
	res, err := s.setup(ctx, req, guarded)
	if errdefs.IsResourceExhausted(err) {
		// Addresses that are about to be free can be had now, and others may have become free since. This takes other sandboxes' locks, so not
		// under this one's.
		if err = s.leaving.now(); err == nil {
			res, err = s.setup(ctx, req, guarded)
		}
	}
	if err != nil {
		return network.Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	return res, nil
}

// prepare is Bridge.Prepare: the sandbox's addresses and ports are on disk when it returns, and the
// source guard knows it.
func (s *sandboxes) prepare(req network.Request) {
	ports, err := lease.CanonicalPorts(req.HostPorts)
	if err != nil || req.SandboxID == "" {
		return
	}
	defer s.locks.Wait(req.SandboxID)()
	if rec, ok := s.ledger.Get(req.SandboxID); ok && rec.Leaving {
		return
	}
	if s.refuses(req.SandboxID, ports) != nil {
		return
	}
	rec, _, err := s.ledger.Assign(req.SandboxID, req.Pod, ports)
	if err == nil {
		s.guard.Connecting(endpointOf(req.SandboxID, rec))
		err = s.admit(rec, false) // no ports before there is somebody who answers
	}
	if err != nil {
		s.log.Debug("addresses could not be prepared", "sandbox", req.SandboxID, "error", err)
	}
}

// setup does so with the sandbox's lock.
func (s *sandboxes) setup(ctx context.Context, req network.Request, guarded bool) (network.Result, error) {
	defer s.locks.Wait(req.SandboxID)()
	// One that is leaving has to be gone before it can come again.
	if rec, ok := s.ledger.Get(req.SandboxID); ok && rec.Leaving {
		if err := s.disconnect(req.SandboxID); err != nil {
			return network.Result{}, err
		}
	}
	if err := s.refuses(req.SandboxID, req.HostPorts); err != nil {
		return network.Result{}, err
	}
	rec, fresh, err := s.ledger.Assign(req.SandboxID, req.Pod, req.HostPorts)
	if err != nil {
		return network.Result{}, err
	}
	if guarded {
		s.warnOfListeners(req.SandboxID, rec)
	}
	settled := s.guard.Connecting(endpointOf(req.SandboxID, rec))
	if err := failpoint.Hit("network/setup/assigned"); err != nil {
		return network.Result{}, err
	}
	res, err := s.attach(req.SandboxID, rec, req.NetNS)
	if err == nil && guarded {
		err = settled(ctx)
	}
	if err == nil {
		return res, nil
	}
	if fresh {
		err = errors.Join(err, s.disconnect(req.SandboxID))
	}
	return network.Result{}, err
}

// refuses is why a sandbox cannot have these host ports, unless it has them already: then they lead nowhere, and it lives on.
func (s *sandboxes) refuses(sandboxID ids.SandboxID, ports []network.HostPort) error {
	if _, known := s.ledger.Get(sandboxID); known {
		return nil
	}
	return network.TakenBy(ports, s.ownPorts)
}

// attach does what the lease says. It is called with the sandbox's lock held.
func (s *sandboxes) attach(sandboxID ids.SandboxID, rec lease.Lease, path string) (network.Result, error) {
	index, has, err := s.links.Pairs.Connect(rec, path, func() error {
		if err := failpoint.Hit("network/setup/connected"); err != nil {
			return err
		}
		return s.admit(rec, true)
	})
	if err != nil {
		return network.Result{}, err
	}
	s.places.set(sandboxID, index, path)
	if err := failpoint.Hit("network/setup/mapped"); err != nil {
		return network.Result{}, err
	}
	res := network.Result{Gateway: has[0].Gateway, Interface: network.InterfaceName}
	for _, a := range has {
		res.IPs = append(res.IPs, a.Address.Addr())
	}
	return res, nil
}

// admit lets the sandbox send with its addresses, and with ports gives it its host ports.
func (s *sandboxes) admit(rec lease.Lease, ports bool) error {
	if err := s.rules.Admit(rec, ports); err != nil || !ports || len(rec.HostPorts) == 0 {
		return err
	}
	return s.flows.forgetPorts(rec)
}

// warnOfListeners tells of processes of the host that listen where a sandbox is about to get host ports: what comes there is the sandbox's then.
func (s *sandboxes) warnOfListeners(sandboxID ids.SandboxID, rec lease.Lease) {
	for _, p := range rec.HostPorts {
		var who string
		_ = onHost(s.hostNS, func() error { // it says nothing then
			who = sockdiag.Listener(lower[p.Protocol], p.HostPort)
			return nil
		})
		if who != "" {
			s.log.Warn("a process of the host listens at a host port: who connects to it reaches the pod from now on", "port", p.String(), "listener", who, "pod", rec.Pod, "sandbox", sandboxID)
		}
	}
}

// lower are the names of lease.Protocols as the kernel's files have them.
var lower = map[string]string{"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
