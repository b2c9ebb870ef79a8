package bridge

import (
	"context"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
)

// noGuard lets everything pass.
type noGuard struct{}

// Connecting implements Guard.
func (noGuard) Connecting(network.Endpoint) func(context.Context) error {
	return func(context.Context) error { return nil }
}

// Disconnected implements Guard.
func (noGuard) Disconnected(...ids.SandboxID) {}

func endpointOf(sandboxID ids.SandboxID, rec lease.Lease) network.Endpoint {
	e := network.Endpoint{SandboxID: sandboxID, Pod: rec.PodInfo}
	for _, a := range rec.Addresses {
		e.Addresses = append(e.Addresses, a.Address.Addr())
	}
	return e
}

// tellGuard tells the guard of all that have addresses, in order.
func tellGuard(guard network.Guard, ledger *lease.Ledger) {
	for _, id := range ledger.Sandboxes() {
		if rec, ok := ledger.Get(id); ok {
			guard.Connecting(endpointOf(id, rec))
		}
	}
}
