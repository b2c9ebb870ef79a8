package bridge

import (
	"context"
	"fmt"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/ruleset"
)

// openWatcher begins to listen, in the network namespace of the calling thread. The elements that come and go with sandboxes are
// not told, and what this node writes else is not looked at.
func (b *Bridge) openWatcher(ctx context.Context) (err error) {
	b.watcher, err = ruleset.Watch(ctx, ruleset.WatchConfig{
		Own:   b.rules.PortID(),
		Judge: b.rules.Concern,
		Look:  b.repair, Wait: b.shutLoopback,
	})
	return err
}

// repair makes what is not as it should be so.
func (b *Bridge) repair(ctx context.Context) (repaired bool) {
	err := b.onHost(func() (err error) {
		repaired, err = b.heal(ctx, b.watcher.Active)
		return err
	})
	if err != nil {
		b.log.ErrorContext(ctx, "the network is not as it should be", "error", err)
	}
	return repaired
}

// shutLoopback closes the way to the host's loopback addresses until the guard is looked at.
func (b *Bridge) shutLoopback() {
	err := b.onHost(func() error {
		b.hostMu.Lock()
		defer b.hostMu.Unlock()
		if !b.watcher.Active() {
			return nil
		}
		b.shut = true
		return b.pairs.routeLocalnet(false)
	})
	if err != nil {
		b.log.Error("pods may reach the host's loopback addresses", "error", err)
	}
}

// onHost calls f on a thread that is in the host's network namespace, whose sysctls it sees then.
func (b *Bridge) onHost(f func() error) error {
	return ns.Run(fmt.Sprintf("/proc/self/fd/%d", int(b.hostNS)), ns.Network, f)
}
