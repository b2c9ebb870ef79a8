package rules

import (
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ruleset"
)

// chainName is a chain of anybody's.
type chainName struct {
	family       byte
	table, chain string
}

// Concern judges one event of the host's rule sets, for who watches them. It waits for nothing.
func (r *Rules) Concern(e ruleset.Event) ruleset.Concern {
	var foreign map[chainName]bool
	if known := r.known.chains.Load(); known != nil {
		foreign = *known
	}
	return concernOf(e, r.cfg.Network.Name, foreign)
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
