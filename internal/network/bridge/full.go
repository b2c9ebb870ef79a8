package bridge

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/rules"
)

// full are the sandboxes that were refused connections, as was told last.
type full struct {
	mu   sync.Mutex
	pods map[ids.SandboxID]string // by sandboxes
}

// tell says of each pod that is at its bound, once for as long as it is.
func (f *full) tell(ctx context.Context, r *rules.Rules, ledger *lease.Ledger, log *slog.Logger) {
	found, limit, err := r.Full()
	if err != nil {
		log.DebugContext(ctx, "nobody knows which pods were refused connections", "error", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(found) == 0 && len(f.pods) == 0 {
		return
	}
	full := map[ids.SandboxID]string{} // pods by sandboxes
	for id, rec := range ledger.All() {
		if slices.ContainsFunc(rec.Addresses, func(a lease.Address) bool { return slices.Contains(found, a.Address.Addr()) }) {
			full[id] = rec.Pod
		}
	}
	for id, pod := range full {
		if _, known := f.pods[id]; !known {
			log.WarnContext(ctx, "a pod has as many connections open as it may: new ones are dropped until some have ended (network.connectionsPerPod)",
				"pod", pod, "sandbox", id, "connectionsPerPod", limit)
		}
	}
	f.pods = full
}
