package network

import (
	"maps"
	"net/netip"
	"slices"
)

// get returns the sandbox's lease.
func (l *ledger) get(sandboxID string) (lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, ok := l.byID[sandboxID]
	return rec, ok
}

// holds says that a sandbox which does not leave has the address.
func (l *ledger) holds(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, ok := l.byID[l.byAddr[a]]
	return ok && !rec.Leaving
}

// all returns every lease by its sandbox.
func (l *ledger) all() map[string]lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.byID)
}

// sandboxes returns who has an address, in order.
func (l *ledger) sandboxes() []string { return slices.Sorted(maps.Keys(l.all())) }

// interfaces returns the host's ends that belong to a sandbox.
func (l *ledger) interfaces() map[string]bool {
	out := map[string]bool{}
	for _, rec := range l.all() {
		out[rec.Interface] = true
	}
	return out
}

// podRanges returns the ranges that new sandboxes get their addresses from.
func (l *ledger) podRanges() []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ranges
}

// setRanges changes them.
func (l *ledger) setRanges(ranges []netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranges = ranges
}

// usedRanges returns the ranges of new sandboxes, and after them, in order, those that are not configured any more and that a
// sandbox has an address of.
func (l *ledger) usedRanges() []netip.Prefix {
	out := slices.Clone(l.podRanges())
	configured := len(out)
	for _, rec := range l.all() {
		for _, a := range rec.Addresses {
			if r := a.Address.Masked(); !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out[configured:], netip.Prefix.Compare)
	return out
}

func (l *ledger) inUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}
