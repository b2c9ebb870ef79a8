package bridge

import (
	"context"
	"slices"

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
func (noGuard) Disconnected(...string) {}

func endpointOf(sandboxID string, rec lease.Lease) network.Endpoint {
	e := network.Endpoint{SandboxID: sandboxID, Pod: rec.PodInfo}
	for _, a := range rec.Addresses {
		e.Addresses = append(e.Addresses, a.Address.Addr())
	}
	return e
}

// tellGuard tells the guard of all that have addresses, in order.
func (b *Bridge) tellGuard() {
	ids := b.ledger.Sandboxes()
	slices.Sort(ids)
	for _, id := range ids {
		if rec, ok := b.ledger.Get(id); ok {
			b.guard.Connecting(endpointOf(id, rec))
		}
	}
}
