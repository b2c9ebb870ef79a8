package lease

import (
	"maps"
	"net/netip"
	"slices"

	"monopod.dev/monopod/internal/kit/ids"
)

// Get returns the sandbox's lease.
func (l *Ledger) Get(sandboxID ids.SandboxID) (Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, ok := l.byID[sandboxID]
	return rec, ok
}

// Holds says that a sandbox which does not leave has the address.
func (l *Ledger) Holds(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, ok := l.byID[l.byAddr[a]]
	return ok && !rec.Leaving
}

// All returns every lease by its sandbox.
func (l *Ledger) All() map[ids.SandboxID]Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.byID)
}

// Sandboxes returns who has an address, in order.
func (l *Ledger) Sandboxes() []ids.SandboxID { return slices.Sorted(maps.Keys(l.All())) }

// Interfaces returns the host's ends that belong to a sandbox.
func (l *Ledger) Interfaces() map[string]bool {
	out := map[string]bool{}
	for _, rec := range l.All() {
		out[rec.Interface] = true
	}
	return out
}

// Ranges returns the ranges that new sandboxes get their addresses from.
func (l *Ledger) Ranges() []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ranges
}

// SetRanges changes them.
func (l *Ledger) SetRanges(ranges []netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranges = ranges
}

// UsedRanges returns the ranges of new sandboxes, and after them, in order, those that are not configured any more and that a
// sandbox has an address of.
func (l *Ledger) UsedRanges() []netip.Prefix {
	out := slices.Clone(l.Ranges())
	configured := len(out)
	for _, rec := range l.All() {
		for _, a := range rec.Addresses {
			if r := a.Address.Masked(); !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out[configured:], netip.Prefix.Compare)
	return out
}

func (l *Ledger) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}
