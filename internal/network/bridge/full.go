package bridge

import (
	"context"
	"slices"

	"monopod.dev/monopod/internal/network/lease"
)

// tellOfFull says of each pod that is at its bound, once for as long as it is.
func (b *Bridge) tellOfFull(ctx context.Context) {
	found, limit, err := b.rules.Full()
	if err != nil {
		b.log.DebugContext(ctx, "nobody knows which pods were refused connections", "error", err)
		return
	}
	b.fullMu.Lock()
	defer b.fullMu.Unlock()
	if len(found) == 0 && len(b.full) == 0 {
		return
	}
	full := map[string]string{} // pods by sandboxes
	for id, rec := range b.ledger.All() {
		if slices.ContainsFunc(rec.Addresses, func(a lease.Address) bool { return slices.Contains(found, a.Address.Addr()) }) {
			full[id] = rec.Pod
		}
	}
	for id, pod := range full {
		if _, known := b.full[id]; !known {
			b.log.WarnContext(ctx, "a pod has as many connections open as it may: new ones are dropped until some have ended (network.connectionsPerPod)",
				"pod", pod, "sandbox", id, "connectionsPerPod", limit)
		}
	}
	b.full = full
}
