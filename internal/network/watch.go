package network

import (
	"context"
	"fmt"
	"maps"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/ruleset"
)

// chainName is a chain of anybody's.
type chainName struct {
	family       byte
	table, chain string
}

// openWatcher begins to listen, in the network namespace of the calling thread. The elements that come and go with sandboxes are
// not told, and what this node writes else is not looked at.
func (b *Bridge) openWatcher(ctx context.Context) (err error) {
	b.watcher, err = ruleset.Watch(ctx, ruleset.WatchConfig{
		Own: b.elements.PortID(),
		Judge: func(e ruleset.Event) ruleset.Concern {
			var foreign map[chainName]bool
			if known := b.foreign.Load(); known != nil {
				foreign = *known
			}
			return concernOf(e, b.table, foreign)
		},
		Look: b.repair, Wait: b.shutLoopback,
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
		return b.routeLocalnet(false)
	})
	if err != nil {
		b.log.Error("pods may reach the host's loopback addresses", "error", err)
	}
}

// onHost calls f on a thread that is in the host's network namespace, whose sysctls it sees then.
func (b *Bridge) onHost(f func() error) error {
	return ns.Run(fmt.Sprintf("/proc/self/fd/%d", int(b.hostNS)), ns.Network, f)
}

// concernOf judges one event. It is pure.
func concernOf(e ruleset.Event, table string, foreign map[chainName]bool) ruleset.Concern {
	ownFamily := nftables.TableFamily(e.Family) == nftables.TableFamilyINet || nftables.TableFamily(e.Family) == nftables.TableFamilyBridge
	own := ownFamily && e.Table == table
	switch e.Kind {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		if e.Hooked && !own {
			return ruleset.Elsewhere
		}
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		if foreign[chainName{e.Family, e.Table, e.Chain}] {
			return ruleset.Elsewhere
		}
	}
	if own {
		return ruleset.Touched
	}
	return ruleset.Untouched
}

// know says which chains of others matter: where their rules for forwarded packets are. A change elsewhere concerns nobody.
func (b *Bridge) know(chains map[chainName]bool) {
	chains = maps.Clone(chains)
	b.foreign.Store(&chains)
}
