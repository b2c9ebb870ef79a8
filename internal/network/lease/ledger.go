package lease

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

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/state"
)

// Lease is what belongs to a sandbox, stored by the sandbox's id in the table "network-addresses". It tells all that is
// needed to connect the sandbox again, also after the configured ranges have changed.
type Lease struct {
	// Addresses has one of each family that the sandbox got, IPv4 first.
	Addresses []Address `json:"addresses"`
	// Interface is the host's end of the veth pair.
	Interface string `json:"interface"`
	// HostPorts lead to the sandbox.
	HostPorts []network.HostPort `json:"hostPorts,omitempty"`
	// Pod is namespace/name, for messages.
	Pod string `json:"pod,omitempty"`
	// PodInfo is whose sandbox it is; records of before it was written down have none.
	PodInfo network.PodInfo `json:"podInfo,omitzero"`
	// Leaving: the sandbox is torn down. Its ports are free; its addresses are as soon as its interface is gone.
	Leaving bool `json:"leaving,omitempty"`
}

// Address of a sandbox.
type Address struct {
	// Address with the length of the range it is from.
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway"`
}

// UnmarshalJSON reads this form, and the one before IPv6, which had a single address beside the interface.
func (l *Lease) UnmarshalJSON(raw []byte) error {
	type plain Lease
	type single Address
	var rec struct {
		plain
		single
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return err
	}
	*l = Lease(rec.plain)
	if len(l.Addresses) == 0 && rec.Address.IsValid() {
		l.Addresses = []Address{Address(rec.single)}
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

// AddressTable is the ledger's table in the state database; its keys are sandboxes' ids.
const AddressTable = "network-addresses"

// Ledger knows which address and which host port belongs to which sandbox. What it holds in memory is always on disk
// already, but for the reservation of a call that is under way.
type Ledger struct {
	db      *state.DB
	leases  state.Table[Lease]
	cursors state.Table[cursor]
	bridge  string

	mu     sync.Mutex
	ranges []netip.Prefix // new sandboxes get an address of each
	byID   map[ids.SandboxID]Lease
	byAddr map[netip.Addr]ids.SandboxID
	byPort portIndex
	last   map[string]netip.Addr // by the cursor's key
}

// Open reads all leases of the table, whichever bridge they are of: of a second built-in network each would need its name. bridge names the cursor, by which the search
// for a free address goes on. What can't be read is logged, and learned again from the sandboxes that live.
func Open(ctx context.Context, db *state.DB, bridge string, ranges []netip.Prefix, log *slog.Logger) *Ledger {
	l := &Ledger{
		db:      db,
		leases:  state.NewTable[Lease](db, AddressTable),
		cursors: state.NewTable[cursor](db, "network-cursor"),
		bridge:  bridge,
		ranges:  ranges,
		byID:    map[ids.SandboxID]Lease{},
		byAddr:  map[netip.Addr]ids.SandboxID{},
		byPort:  portIndex{},
		last:    map[string]netip.Addr{},
	}
	recs, err := l.leases.List()
	if err != nil {
		// Reconcile learns the addresses of live sandboxes from the sandboxes themselves.
		log.ErrorContext(ctx, "a pod address record cannot be read", "error", err)
	}
	for id, rec := range recs {
		l.byID[ids.SandboxID(id)] = rec
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

func (l *Ledger) cursorKey(ipv4 bool) string {
	if ipv4 {
		return l.bridge
	}
	return l.bridge + "/ip6"
}

// Assign returns the sandbox's lease; when it has none it gets one, which is on disk when assign returns. fresh tells
// which of both it was.
//
// Errors: ResourceExhausted (a range is used up), AlreadyExists (another sandbox has a host port), FailedPrecondition
// (the sandbox has a lease with other host ports).
func (l *Ledger) Assign(sandboxID ids.SandboxID, pod network.PodInfo, ports []network.HostPort) (rec Lease, fresh bool, err error) {
	rec, fresh, err = l.reserve(sandboxID, pod, ports)
	if err != nil || !fresh {
		return rec, fresh, err
	}
	err = l.write(sandboxID, rec) // the lock is not held while the disk is written
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unindex(sandboxID, rec)
		return Lease{}, false, fmt.Errorf("pod address %s: %w", rec.Addresses[0].Address.Addr(), err)
	}
	l.byID[sandboxID] = rec
	return rec, true, nil
}

func (l *Ledger) reserve(sandboxID ids.SandboxID, pod network.PodInfo, ports []network.HostPort) (rec Lease, fresh bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rec, ok := l.byID[sandboxID]; ok {
		if !slices.Equal(rec.HostPorts, ports) {
			return Lease{}, false, fmt.Errorf("it is connected with the host ports %v, not with %v: %w", rec.HostPorts, ports, errdefs.ErrFailedPrecondition)
		}
		return rec, false, nil
	}
	if err := l.byPort.conflict(ports, l.byID); err != nil {
		return Lease{}, false, err
	}
	rec = Lease{Interface: HostInterface(l.bridge, sandboxID), HostPorts: ports, Pod: pod.Qualified(), PodInfo: pod}
	for _, r := range l.ranges {
		addr, ok := next(r, l.last[l.cursorKey(r.Addr().Is4())], func(a netip.Addr) bool { return l.byAddr[a] != "" })
		if !ok {
			return Lease{}, false, fmt.Errorf("pod range %s is used up: all of its %d addresses are in use; remove pods or set network.podCIDRs to a larger range: %w",
				r, size(r), errdefs.ErrResourceExhausted)
		}
		rec.Addresses = append(rec.Addresses, Address{Address: netip.PrefixFrom(addr, r.Bits()), Gateway: GatewayOf(r)})
	}
	for _, p := range ports {
		if !reachable(p, rec.Addresses) {
			return Lease{}, false, fmt.Errorf("host port %s: the sandbox has no address of the family of %s: %w", p, p.HostIP, errdefs.ErrInvalidArgument)
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
func (l *Ledger) unindex(sandboxID ids.SandboxID, rec Lease) {
	for _, a := range rec.Addresses {
		if l.byAddr[a.Address.Addr()] == sandboxID {
			delete(l.byAddr, a.Address.Addr())
		}
	}
	l.byPort.remove(sandboxID, rec.HostPorts)
}

func (l *Ledger) write(sandboxID ids.SandboxID, rec Lease) error {
	return l.db.Update(func(tx *state.Tx) error {
		for _, a := range rec.Addresses {
			addr := a.Address.Addr()
			if err := l.cursors.PutTx(tx, l.cursorKey(addr.Is4()), cursor{Last: addr}); err != nil {
				return err
			}
		}
		return l.leases.PutTx(tx, string(sandboxID), rec)
	})
}

// Adopt takes the addresses of a sandbox that has them without a record. It is Conflict when another sandbox has one.
func (l *Ledger) Adopt(sandboxID ids.SandboxID, rec Lease) error {
	if err := l.take(sandboxID, rec); err != nil {
		return err
	}
	err := l.leases.Put(string(sandboxID), rec) // the lock is not held while the disk is written
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unindex(sandboxID, rec)
		return err
	}
	l.byID[sandboxID] = rec
	return nil
}

// take notes whose the addresses are.
func (l *Ledger) take(sandboxID ids.SandboxID, rec Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range rec.Addresses {
		if other := l.byAddr[a.Address.Addr()]; other != "" && other != sandboxID {
			return fmt.Errorf("address %s of sandbox %s belongs to sandbox %s: %w", a.Address.Addr(), sandboxID, other, errdefs.ErrConflict)
		}
	}
	for _, a := range rec.Addresses {
		l.byAddr[a.Address.Addr()] = sandboxID
	}
	return nil
}

// Leave takes down that the sandboxes are torn down, and returns the leases of those that have one: their ports are free
// when leave returns. Without ports nothing is written: a sandbox that does not live is torn down by Reconcile in any case.
func (l *Ledger) Leave(sandboxIDs ...ids.SandboxID) (map[ids.SandboxID]Lease, error) {
	l.mu.Lock()
	had, write := map[ids.SandboxID]Lease{}, map[ids.SandboxID]Lease{}
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
				if err := l.leases.PutTx(tx, string(id), had[id]); err != nil {
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

// Release frees what the sandboxes have; one that has nothing is no error.
func (l *Ledger) Release(sandboxIDs ...ids.SandboxID) error {
	l.mu.Lock()
	gone := map[ids.SandboxID]Lease{}
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
			if err := l.leases.DeleteTx(tx, string(id)); err != nil {
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

// Forget drops where the search for addresses was.
func (l *Ledger) Forget() error {
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
