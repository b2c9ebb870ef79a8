package network

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/state"
)

// lease is what belongs to a sandbox, stored by the sandbox's id in the table "network-addresses". It tells all that is
// needed to connect the sandbox again, also after the configured ranges have changed.
type lease struct {
	// Addresses has one of each family that the sandbox got, IPv4 first.
	Addresses []address `json:"addresses"`
	// Interface is the host's end of the veth pair.
	Interface string `json:"interface"`
	// HostPorts lead to the sandbox.
	HostPorts []HostPort `json:"hostPorts,omitempty"`
	// Pod is namespace/name, for messages.
	Pod string `json:"pod,omitempty"`
	// PodInfo is whose sandbox it is; records of before it was written down have none.
	PodInfo PodInfo `json:"podInfo,omitzero"`
	// Leaving: the sandbox is torn down. Its ports are free; its addresses are as soon as its interface is gone.
	Leaving bool `json:"leaving,omitempty"`
}

// address of a sandbox.
type address struct {
	// Address with the length of the range it is from.
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway"`
}

// UnmarshalJSON reads this form, and the one before IPv6, which had a single address beside the interface.
func (l *lease) UnmarshalJSON(raw []byte) error {
	type plain lease
	var rec struct {
		plain
		address
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return err
	}
	*l = lease(rec.plain)
	if len(l.Addresses) == 0 && rec.Address.IsValid() {
		l.Addresses = []address{rec.address}
	}
	if len(l.Addresses) == 0 || l.Interface == "" {
		return fmt.Errorf("it has %d addresses and the interface %q, it needs both", len(l.Addresses), l.Interface)
	}
	return nil
}

// cursor is where the search for a free address goes on, stored in the table "network-cursor" by the bridge's name, for
// IPv6 by that and "/ip6".
type cursor struct {
	Last netip.Addr `json:"last"`
}

// ledger knows which address and which host port belongs to which sandbox. What it holds in memory is always on disk
// already, but for the reservation of a call that is under way.
type ledger struct {
	db      *state.DB
	leases  state.Table[lease]
	cursors state.Table[cursor]
	bridge  string

	mu     sync.Mutex
	ranges []netip.Prefix // new sandboxes get an address of each
	byID   map[string]lease
	byAddr map[netip.Addr]string
	byPort portIndex
	last   map[string]netip.Addr // by the cursor's key
}

func openLedger(ctx context.Context, db *state.DB, bridge string, ranges []netip.Prefix, log *slog.Logger) *ledger {
	l := &ledger{
		db:      db,
		leases:  state.NewTable[lease](db, AddressTable),
		cursors: state.NewTable[cursor](db, "network-cursor"),
		bridge:  bridge,
		ranges:  ranges,
		byAddr:  map[netip.Addr]string{},
		byPort:  portIndex{},
		last:    map[string]netip.Addr{},
	}
	var err error
	if l.byID, err = l.leases.List(); err != nil {
		// Reconcile learns the addresses of live sandboxes from the sandboxes themselves.
		log.ErrorContext(ctx, "a pod address record cannot be read", "error", err)
	}
	for _, id := range slices.Sorted(maps.Keys(l.byID)) {
		rec := l.byID[id]
		for _, a := range rec.Addresses {
			l.byAddr[a.Address.Addr()] = id
		}
		if rec.Leaving {
			continue
		}
		if err := l.byPort.conflict(rec.HostPorts, l.byID); err != nil {
			log.ErrorContext(ctx, "a stored host port is not mapped", "sandbox", id, "error", err)
			rec.HostPorts = nil
			l.byID[id] = rec
		}
		l.byPort.add(id, rec.HostPorts)
	}
	for _, family := range []bool{true, false} {
		key := l.cursorKey(family)
		c, err := l.cursors.Get(key)
		if err != nil && !errdefs.IsNotFound(err) {
			log.ErrorContext(ctx, "the pod address cursor cannot be read", "error", err)
		}
		l.last[key] = c.Last
	}
	return l
}

func (l *ledger) cursorKey(ipv4 bool) string {
	if ipv4 {
		return l.bridge
	}
	return l.bridge + "/ip6"
}

// assign returns the sandbox's lease; when it has none it gets one, which is on disk when assign returns. fresh tells
// which of both it was.
//
// Errors: ResourceExhausted (a range is used up), AlreadyExists (another sandbox has a host port), FailedPrecondition
// (the sandbox has a lease with other host ports).
func (l *ledger) assign(sandboxID string, pod PodInfo, ports []HostPort) (rec lease, fresh bool, err error) {
	rec, fresh, err = l.reserve(sandboxID, pod, ports)
	if err != nil || !fresh {
		return rec, fresh, err
	}
	err = l.write(sandboxID, rec) // the lock is not held while the disk is written
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unindex(sandboxID, rec)
		return lease{}, false, fmt.Errorf("pod address %s: %w", rec.Addresses[0].Address.Addr(), err)
	}
	l.byID[sandboxID] = rec
	return rec, true, nil
}

func (l *ledger) reserve(sandboxID string, pod PodInfo, ports []HostPort) (rec lease, fresh bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rec, ok := l.byID[sandboxID]; ok {
		if !slices.Equal(rec.HostPorts, ports) {
			return lease{}, false, fmt.Errorf("it is connected with the host ports %v, not with %v: %w", rec.HostPorts, ports, errdefs.ErrFailedPrecondition)
		}
		return rec, false, nil
	}
	if err := l.byPort.conflict(ports, l.byID); err != nil {
		return lease{}, false, err
	}
	rec = lease{Interface: hostInterface(l.bridge, sandboxID), HostPorts: ports, Pod: pod.qualified(), PodInfo: pod}
	for _, r := range l.ranges {
		addr, ok := next(r, l.last[l.cursorKey(r.Addr().Is4())], func(a netip.Addr) bool { return l.byAddr[a] != "" })
		if !ok {
			return lease{}, false, fmt.Errorf("pod range %s is used up: all of its %d addresses are in use; remove pods or set network.podCIDRs to a larger range: %w",
				r, size(r), errdefs.ErrResourceExhausted)
		}
		rec.Addresses = append(rec.Addresses, address{Address: netip.PrefixFrom(addr, r.Bits()), Gateway: gatewayOf(r)})
	}
	for _, p := range ports {
		if !reachable(p, rec.Addresses) {
			return lease{}, false, fmt.Errorf("host port %s: the sandbox has no address of the family of %s: %w", p, p.HostIP, errdefs.ErrInvalidArgument)
		}
	}
	for _, a := range rec.Addresses {
		addr := a.Address.Addr()
		l.byAddr[addr], l.last[l.cursorKey(addr.Is4())] = sandboxID, addr
	}
	l.byPort.add(sandboxID, ports)
	return rec, true, nil
}

// unindex forgets whose the lease's addresses and ports are. It is called with the lock held.
func (l *ledger) unindex(sandboxID string, rec lease) {
	for _, a := range rec.Addresses {
		if l.byAddr[a.Address.Addr()] == sandboxID {
			delete(l.byAddr, a.Address.Addr())
		}
	}
	l.byPort.remove(sandboxID, rec.HostPorts)
}

func (l *ledger) write(sandboxID string, rec lease) error {
	return l.db.Update(func(tx *state.Tx) error {
		for _, a := range rec.Addresses {
			addr := a.Address.Addr()
			if err := l.cursors.PutTx(tx, l.cursorKey(addr.Is4()), cursor{Last: addr}); err != nil {
				return err
			}
		}
		return l.leases.PutTx(tx, sandboxID, rec)
	})
}

// adopt takes the addresses of a sandbox that has them without a record. It is Conflict when another sandbox has one.
func (l *ledger) adopt(sandboxID string, rec lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range rec.Addresses {
		if other := l.byAddr[a.Address.Addr()]; other != "" && other != sandboxID {
			return fmt.Errorf("address %s of sandbox %s belongs to sandbox %s: %w", a.Address.Addr(), sandboxID, other, errdefs.ErrConflict)
		}
	}
	if err := l.leases.Put(sandboxID, rec); err != nil {
		return err
	}
	l.byID[sandboxID] = rec
	for _, a := range rec.Addresses {
		l.byAddr[a.Address.Addr()] = sandboxID
	}
	return nil
}

// leave takes down that the sandboxes are torn down, and returns the leases of those that have one: their ports are free
// when leave returns. Without ports nothing is written: a sandbox that does not live is torn down by Reconcile in any case.
func (l *ledger) leave(sandboxIDs ...string) (map[string]lease, error) {
	l.mu.Lock()
	had, write := map[string]lease{}, map[string]lease{}
	for _, id := range sandboxIDs {
		rec, ok := l.byID[id]
		if !ok {
			continue
		}
		if !rec.Leaving && len(rec.HostPorts) > 0 {
			write[id] = rec
		}
		rec.Leaving = true
		had[id] = rec
	}
	l.mu.Unlock()
	if len(write) > 0 {
		err := l.db.Update(func(tx *state.Tx) error {
			for id := range write {
				if err := l.leases.PutTx(tx, id, had[id]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("freeing host ports: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, rec := range had {
		l.byID[id] = rec
		l.byPort.remove(id, rec.HostPorts)
	}
	return had, nil
}

// release frees what the sandboxes have; one that has nothing is no error.
func (l *ledger) release(sandboxIDs ...string) error {
	l.mu.Lock()
	gone := map[string]lease{}
	for _, id := range sandboxIDs {
		if rec, ok := l.byID[id]; ok {
			gone[id] = rec
		}
	}
	l.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	err := l.db.Update(func(tx *state.Tx) error {
		for id := range gone {
			if err := l.leases.DeleteTx(tx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("freeing %d pod addresses: %w", len(gone), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, rec := range gone {
		delete(l.byID, id)
		l.unindex(id, rec)
	}
	return nil
}

// forget drops where the search for addresses was.
func (l *ledger) forget() error {
	for _, ipv4 := range []bool{true, false} {
		if err := l.cursors.Delete(l.cursorKey(ipv4)); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.last)
	return nil
}
