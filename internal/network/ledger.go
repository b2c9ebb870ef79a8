package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/state"
)

// lease is an address that belongs to a sandbox, stored by the sandbox's id in the table "network-addresses". It tells
// all that is needed to connect the sandbox again, also after the configured range has changed.
type lease struct {
	// Address with the length of the range it is from.
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway"`
	// Interface is the host's end of the veth pair.
	Interface string `json:"interface"`
}

// cursor is where the search for a free address goes on, stored by the bridge's name in the table "network-cursor".
type cursor struct {
	Last netip.Addr `json:"last"`
}

// ledger knows which address belongs to which sandbox. What it holds in memory is always on disk already, but for the
// reservation of a call that is under way.
type ledger struct {
	db      *state.DB
	leases  state.Table[lease]
	cursors state.Table[cursor]
	bridge  string
	prefix  netip.Prefix
	gateway netip.Addr

	mu     sync.Mutex
	byID   map[string]lease
	byAddr map[netip.Addr]string
	last   netip.Addr
}

func openLedger(ctx context.Context, db *state.DB, bridge string, prefix netip.Prefix, log *slog.Logger) (*ledger, error) {
	l := &ledger{
		db:      db,
		leases:  state.NewTable[lease](db, "network-addresses"),
		cursors: state.NewTable[cursor](db, "network-cursor"),
		bridge:  bridge,
		prefix:  prefix,
		gateway: prefix.Addr().Next(),
		byAddr:  map[netip.Addr]string{},
	}
	var err error
	if l.byID, err = l.leases.List(); err != nil {
		// Reconcile learns the addresses of live sandboxes from the sandboxes themselves.
		log.ErrorContext(ctx, "a pod address record cannot be read", "err", err)
	}
	for id, rec := range l.byID {
		l.byAddr[rec.Address.Addr()] = id
	}
	c, err := l.cursors.Get(bridge)
	if err != nil && !errdefs.IsNotFound(err) {
		log.ErrorContext(ctx, "the pod address cursor cannot be read", "err", err)
	}
	l.last = c.Last
	return l, nil
}

// assign returns the sandbox's address; when it has none it gets one, which is on disk when assign returns. fresh tells
// which of both it was.
func (l *ledger) assign(sandboxID string) (rec lease, fresh bool, err error) {
	l.mu.Lock()
	if rec, ok := l.byID[sandboxID]; ok {
		l.mu.Unlock()
		return rec, false, nil
	}
	addr, ok := next(l.prefix, l.last, func(a netip.Addr) bool { return l.byAddr[a] != "" })
	if !ok {
		inUse := len(l.byAddr)
		l.mu.Unlock()
		return lease{}, false, fmt.Errorf("pod range %s is used up: %d of its %d addresses are in use; remove pods or set network.podCIDR to a larger range: %w",
			l.prefix, inUse, size(l.prefix), errdefs.ErrResourceExhausted)
	}
	rec = lease{
		Address:   netip.PrefixFrom(addr, l.prefix.Bits()),
		Gateway:   l.gateway,
		Interface: hostInterface(l.bridge, sandboxID),
	}
	l.byAddr[addr], l.last = sandboxID, addr // reserved: the lock is not held while the disk is written
	l.mu.Unlock()

	err = l.write(sandboxID, rec)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.byAddr, addr)
		return lease{}, false, fmt.Errorf("pod address %s: %w", addr, err)
	}
	l.byID[sandboxID] = rec
	return rec, true, nil
}

func (l *ledger) write(sandboxID string, rec lease) error {
	return l.db.Update(func(tx *state.Tx) error {
		if err := l.cursors.PutTx(tx, l.bridge, cursor{Last: rec.Address.Addr()}); err != nil {
			return err
		}
		return l.leases.PutTx(tx, sandboxID, rec)
	})
}

// adopt takes the address of a sandbox that has one without a record. It is Conflict when another sandbox has it.
func (l *ledger) adopt(sandboxID string, rec lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.byAddr[rec.Address.Addr()]; other != "" && other != sandboxID {
		return fmt.Errorf("address %s of sandbox %s belongs to sandbox %s: %w", rec.Address.Addr(), sandboxID, other, errdefs.ErrConflict)
	}
	if err := l.leases.Put(sandboxID, rec); err != nil {
		return err
	}
	l.byID[sandboxID] = rec
	l.byAddr[rec.Address.Addr()] = sandboxID
	return nil
}

// release frees the sandbox's address; one that has none is no error.
func (l *ledger) release(sandboxID string) error {
	l.mu.Lock()
	rec, ok := l.byID[sandboxID]
	l.mu.Unlock()
	if !ok {
		return nil
	}
	if err := l.leases.Delete(sandboxID); err != nil {
		return fmt.Errorf("freeing pod address %s: %w", rec.Address.Addr(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, sandboxID)
	delete(l.byAddr, rec.Address.Addr())
	return nil
}

// forget drops where the search for addresses was.
func (l *ledger) forget() error {
	if err := l.cursors.Delete(l.bridge); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = netip.Addr{}
	return nil
}

func (l *ledger) has(sandboxID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.byID[sandboxID]
	return ok
}

// sandboxes returns who has an address, in order.
func (l *ledger) sandboxes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]string, 0, len(l.byID))
	for id := range l.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// interfaces returns the host's ends that belong to a sandbox.
func (l *ledger) interfaces() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]bool{}
	for _, rec := range l.byID {
		out[rec.Interface] = true
	}
	return out
}

// usesGateway says whether a sandbox still has this gateway, from the range that was configured when it was made.
func (l *ledger) usesGateway(gateway netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rec := range l.byID {
		if rec.Gateway == gateway {
			return true
		}
	}
	return false
}

func (l *ledger) inUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}
