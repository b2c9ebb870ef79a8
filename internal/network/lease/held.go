package lease

import (
	"net/netip"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/state"
)

// Held is what the ledger has for a sandbox.
type Held struct {
	Addresses []netip.Addr
	// Interface is the host's end of the pair.
	Interface string
}

// ReadHeld reads the ledger of a database that no node works with, by the sandboxes' ids. Records that cannot be read are in the
// error (state.Undecodable); the others are returned with it.
func ReadHeld(db *state.DB) (map[ids.SandboxID]Held, error) {
	recs, err := state.NewTable[Lease](db, AddressTable).List()
	out := map[ids.SandboxID]Held{}
	for id, rec := range recs {
		h := Held{Interface: rec.Interface}
		for _, a := range rec.Addresses {
			h.Addresses = append(h.Addresses, a.Address.Addr())
		}
		out[ids.SandboxID(id)] = h
	}
	return out, err
}
