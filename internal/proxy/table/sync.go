package table

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// errShape says that chains or rules are not as they should be.
var errShape = errors.New("chains or rules are missing, or are others")

// judge says whether an event is about the table.
func (t *Table) judge(e ruleset.Event) ruleset.Concern {
	if e.Table == t.cfg.Name && nftables.TableFamily(e.Family) == nftables.TableFamilyINet {
		return ruleset.Touched
	}
	return ruleset.Untouched
}

// look puts right what somebody has changed.
func (t *Table) look(ctx context.Context) (repaired bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.watcher.Active() || t.shape == nil {
		return false
	}
	have, err := t.read()
	if err == nil && len(t.book.difference(have)) == 0 && len(t.missingWays()) == 0 {
		return false
	}
	t.log.WarnContext(ctx, "the rules of services are not as they were left, they are repaired", "table", t.cfg.Name, "error", err)
	if err := t.sync(); err != nil {
		t.log.ErrorContext(ctx, "the rules of services are not as they should be", "table", t.cfg.Name, "error", err)
	}
	return true
}

// sync makes the table as it is wanted: what differs, or, where that would not do, all of it, in one transaction.
func (t *Table) sync() error {
	have, err := t.read()
	if err == nil {
		if err = t.addWays(t.missingWays()); err == nil {
			err = t.carryOut(t.book.difference(have))
		}
		if err == nil {
			return nil
		}
	}
	t.log.Debug("the rules of services are made anew, as a whole", "table", t.cfg.Name, "reason", err)
	t.disconnect()
	if err = t.write(); err != nil {
		t.disconnect()
	}
	return t.explain(err)
}

// write makes all of it anew, in one transaction, so that there is no moment without it.
func (t *Table) write() error {
	if err := t.connect(); err != nil {
		return err
	}
	if err := t.takeAway(); err != nil {
		return err
	}
	t.conn.AddTable(t.names.own)
	var errs []error
	for f := range families {
		errs = append(errs, t.conn.AddSet(t.names.affinitySet(uint8(f)), nil))
		for _, k := range []kind{services, outside} {
			errs = append(errs, t.conn.AddSet(t.names.waySet(setID{k, uint8(f)}), nil))
		}
	}
	elements := map[setID][]nftables.SetElement{}
	for el, c := range t.book.wanted {
		elements[el.set] = append(elements[el.set], setElement(el, c.first.value(el), c.first.name))
	}
	for _, id := range setIDs() {
		set := t.names.set(id)
		errs = append(errs, t.conn.AddSet(set, nil))
		for part := range slices.Chunk(elements[id], 500) {
			errs = append(errs, t.conn.SetAddElements(set, part))
		}
	}
	t.addShape()
	t.ways = map[wayKey]bool{}
	ways := t.missingWays()
	for k := range ways {
		errs = append(errs, t.addWay(k))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := failpoint.Hit("proxy/table/write"); err != nil {
		return err
	}
	if err := t.conn.Flush(); err != nil {
		return err
	}
	t.ways = ways
	return nil
}

// takeAway puts into the transaction that there is nothing: of the own table, and of the one of the family bridge that versions before had beside it, which
// would lead frames that nobody leads any more. A kernel may lack that family: then it lists none of its tables.
func (t *Table) takeAway() error {
	former, err := t.conn.ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return err
	}
	gone := []*nftables.Table{t.names.own}
	if slices.ContainsFunc(former, func(f *nftables.Table) bool { return f.Name == t.names.former.Name }) {
		gone = append(gone, t.names.former)
	}
	for _, table := range gone {
		t.conn.AddTable(table) // so that deleting it cannot fail
		t.conn.DelTable(table)
	}
	return nil
}

// addShape puts chains and rules into the transaction.
func (t *Table) addShape() {
	accept := nftables.ChainPolicyAccept
	chains := map[string]*nftables.Chain{}
	for _, c := range t.shape.chains {
		made := &nftables.Chain{Name: c.name, Table: t.names.own}
		if c.hook != nil {
			priority := c.priority
			made.Type, made.Hooknum, made.Priority, made.Policy = c.typ, c.hook, &priority, &accept
		}
		chains[c.name] = t.conn.AddChain(made)
	}
	for _, r := range t.shape.rules {
		t.conn.AddRule(&nftables.Rule{Table: t.names.own, Chain: chains[r.chain], Exprs: r.exprs})
	}
}

// addWay puts the chain of a way, unless it is one of the shape, and what leads to it into the transaction.
func (t *Table) addWay(k wayKey) error {
	name := chainOf(k)
	if !k.way.refuses() {
		c := t.conn.AddChain(&nftables.Chain{Name: name, Table: t.names.own})
		t.conn.FlushChain(c) // it may be there, without what leads to it
		for _, exprs := range rulesOf(k) {
			t.conn.AddRule(&nftables.Rule{Table: t.names.own, Chain: c, Exprs: exprs})
		}
	}
	return t.conn.SetAddElements(t.names.waySet(k.set), []nftables.SetElement{
		{Key: native(uint32(k.way)), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: name}},
	})
}

// missingWays are those that are needed, or always there, and are not.
func (t *Table) missingWays() map[wayKey]bool {
	missing := t.book.ways()
	for f := range families {
		for _, k := range []kind{services, outside} {
			for _, w := range []way{refuse, refuseElse, silence} {
				missing[wayKey{setID{k, uint8(f)}, w}] = true
			}
		}
	}
	maps.DeleteFunc(missing, func(k wayKey, _ bool) bool { return t.ways[k] })
	return missing
}

// addWays makes the ways that are not there yet. Nothing goes them before the elements say so.
func (t *Table) addWays(needed map[wayKey]bool) error {
	var errs []error
	added := map[wayKey]bool{}
	for k := range needed {
		if t.ways[k] {
			continue
		}
		if err := t.connect(); err != nil {
			return err
		}
		errs = append(errs, t.addWay(k))
		added[k] = true
	}
	if len(added) == 0 {
		return nil
	}
	err := errors.Join(errs...)
	if err == nil {
		err = t.conn.Flush()
	}
	if err != nil {
		t.disconnect()
		return t.explain(err)
	}
	for k := range added {
		t.ways[k] = true
	}
	return nil
}

// read asks the kernel for all elements. The error says why the table has to be made anew.
func (t *Table) read() (map[element]string, error) {
	have := map[element]string{}
	if err := t.connect(); err != nil {
		return have, err
	}
	for _, id := range setIDs() {
		all, err := t.conn.GetSetElements(t.names.set(id))
		if err != nil {
			t.disconnect()
			return have, err
		}
		for _, e := range all {
			key := string(e.Key)
			if id.kind == allowed {
				key += string(e.KeyEnd)
			}
			have[element{id, key}] = string(e.Val)
		}
	}
	if t.shape == nil {
		return have, nil
	}
	return have, t.checkShape()
}

// checkShape says whether chains and rules are as they should be. It notes which ways there are.
func (t *Table) checkShape() error {
	want := map[string]int{}
	for _, r := range t.shape.rules {
		want[r.chain]++
	}
	found, err := t.rules()
	if err != nil {
		return err
	}
	ways := map[wayKey]bool{}
	for f := range families {
		for _, kd := range []kind{services, outside} {
			id := setID{kd, uint8(f)}
			all, err := t.conn.GetSetElements(t.names.waySet(id))
			if err != nil {
				t.disconnect()
				return err
			}
			for _, e := range all {
				k := wayKey{id, way(binary.NativeEndian.Uint32(e.Key))}
				ways[k] = true
				if to := verdictChain(e.Val); to != chainOf(k) {
					return fmt.Errorf("the way %s leads to the chain %q: %w", chainOf(k), to, errShape)
				}
				if !k.way.refuses() {
					want[chainOf(k)] = len(rulesOf(k))
				}
			}
		}
	}
	for name, n := range want {
		if found[name] != n {
			return fmt.Errorf("chain %s of the table %s has %d rules, not %d: %w", name, t.cfg.Name, found[name], n, errShape)
		}
	}
	for name := range found {
		// A way without a way to it was about to be made.
		if want[name] == 0 && !strings.Contains(name, "-one-of-") {
			return fmt.Errorf("chain %s of the table %s is nobody's: %w", name, t.cfg.Name, errShape)
		}
	}
	t.ways = ways
	return nil
}

// verdictChain is the chain that a verdict leads to, as an element has it.
func verdictChain(value []byte) (chain string) {
	nlsock.EachAttr(value, func(attr uint16, data []byte) {
		if attr == unix.NFTA_VERDICT_CHAIN {
			chain = nl.BytesToString(data)
		}
	})
	return chain
}

// rules counts the rules of the table by their chains.
func (t *Table) rules() (map[string]int, error) {
	body := append([]byte{byte(nftables.TableFamilyINet), 0, 0, 0}, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(t.cfg.Name)).Serialize()...)
	found := map[string]int{}
	err := t.reader.Dump(nlsock.Request{What: "list the rules", Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: unix.NLM_F_DUMP, Body: body},
		func(body []byte) {
			var table, chain string
			nlsock.EachAttr(body[min(4, len(body)):], func(attr uint16, data []byte) {
				switch attr {
				case unix.NFTA_RULE_TABLE:
					table = nl.BytesToString(data)
				case unix.NFTA_RULE_CHAIN:
					chain = nl.BytesToString(data)
				}
			})
			if table == t.cfg.Name {
				found[chain]++
			}
		})
	return found, err
}

// Remove takes the table away.
func (t *Table) Remove() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watcher.SetActive(false)
	t.shape, t.book, t.ways = nil, newBook(), map[wayKey]bool{}
	if err := t.connect(); err != nil {
		return err
	}
	err := t.takeAway()
	if err == nil {
		err = t.conn.Flush()
	}
	if err != nil {
		t.disconnect()
	}
	return t.explain(err)
}

func (t *Table) explain(err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT) {
		return fmt.Errorf("services: nftables table %q: %w; the kernel needs nf_tables, nft_chain_nat, nft_masq, nft_nat, nft_fib_inet, nft_numgen, nft_ct and nft_reject_inet (modprobe -a with these names), and must be 5.10 or newer: %w",
			t.cfg.Name, err, errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("services: nftables table %q: %w", t.cfg.Name, err)
}
