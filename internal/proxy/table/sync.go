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

	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
)

// errShape says that chains or rules are not as they should be.
var errShape = errors.New("chains or rules are missing, or are others")

// judge says whether an event is about these tables.
func (t *Table) judge(e ruleset.Event) ruleset.Concern {
	family := nftables.TableFamily(e.Family)
	if e.Table == t.cfg.Name && (family == nftables.TableFamilyINet || family == nftables.TableFamilyBridge) {
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
	if err == nil && len(t.book.difference(t.served(have))) == 0 && len(t.missingWays()) == 0 {
		return false
	}
	t.log.WarnContext(ctx, "the rules of services are not as they were left, they are repaired", "table", t.cfg.Name, "error", err)
	if err := t.sync(); err != nil {
		t.log.ErrorContext(ctx, "the rules of services are not as they should be", "table", t.cfg.Name, "error", err)
	}
	return true
}

// sync makes the tables as they are wanted: what differs, or, where that would not do, all of it, in one transaction.
func (t *Table) sync() error {
	have, err := t.read()
	if err == nil {
		if err = t.addWays(t.missingWays()); err == nil {
			err = t.carryOut(t.book.difference(t.served(have)))
		}
		if err == nil {
			return nil
		}
	}
	t.log.Debug("the rules of services are made anew, as a whole", "table", t.cfg.Name, "reason", err)
	t.disconnect()
	err = t.write()
	if err != nil && t.site.redirects() && noBridgeFamily(err) {
		// It may be the family of bridges that the kernel lacks.
		t.disconnect()
		t.unbridged = err
		t.site.mac = nil
		t.shape = shapeOf(t.site)
		if err = t.write(); err == nil {
			t.log.Warn(unbridgedWarning, "error", t.unbridged)
		}
	}
	if err != nil {
		t.disconnect()
	}
	return t.explain(err)
}

// served leaves out what this host cannot have.
func (t *Table) served(have map[element]string) map[element]string {
	if t.site.redirects() {
		return have
	}
	// What is wanted of the table bridge counts as being there.
	for el := range t.book.wanted {
		if el.set.kind == local {
			have[el] = ""
		}
	}
	return have
}

// write makes all of it anew, in one transaction, so that there is no moment without it.
func (t *Table) write() error {
	if err := t.connect(); err != nil {
		return err
	}
	t.conn.AddTable(t.names.inet) // first, so that deleting it cannot fail
	t.conn.DelTable(t.names.inet)
	t.conn.AddTable(t.names.inet)
	if t.site.redirects() {
		t.conn.AddTable(t.names.bridge)
		t.conn.DelTable(t.names.bridge)
		t.conn.AddTable(t.names.bridge)
	}
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
		if id.kind == local && !t.site.redirects() {
			continue
		}
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

// addShape puts chains and rules into the transaction.
func (t *Table) addShape() {
	accept := nftables.ChainPolicyAccept
	chains := map[string]*nftables.Chain{}
	key := func(f nftables.TableFamily, name string) string { return fmt.Sprint(f, name) }
	for _, c := range t.shape.chains {
		made := &nftables.Chain{Name: c.name, Table: t.tableOf(c.family)}
		if c.hook != nil {
			priority := c.priority
			made.Type, made.Hooknum, made.Priority, made.Policy = c.typ, c.hook, &priority, &accept
		}
		chains[key(c.family, c.name)] = t.conn.AddChain(made)
	}
	for _, r := range t.shape.rules {
		c := chains[key(r.family, r.chain)]
		t.conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: r.exprs})
	}
}

func (t *Table) tableOf(f nftables.TableFamily) *nftables.Table {
	if f == nftables.TableFamilyBridge {
		return t.names.bridge
	}
	return t.names.inet
}

// addWay puts the chain of a way, unless it is one of the shape, and what leads to it into the transaction.
func (t *Table) addWay(k wayKey) error {
	name := chainOf(k)
	if !k.way.refuses() {
		c := t.conn.AddChain(&nftables.Chain{Name: name, Table: t.names.inet})
		t.conn.FlushChain(c) // it may be there, without what leads to it
		for _, exprs := range rulesOf(k) {
			t.conn.AddRule(&nftables.Rule{Table: t.names.inet, Chain: c, Exprs: exprs})
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

// read asks the kernel for all elements. The error says why the tables have to be made anew.
func (t *Table) read() (map[element]string, error) {
	have := map[element]string{}
	if err := t.connect(); err != nil {
		return have, err
	}
	for _, id := range setIDs() {
		if id.kind == local && (t.shape == nil || !t.site.redirects()) {
			continue
		}
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
	found := map[nftables.TableFamily]map[string]int{}
	want := map[nftables.TableFamily]map[string]int{nftables.TableFamilyINet: {}}
	for _, r := range t.shape.rules {
		if want[r.family] == nil {
			want[r.family] = map[string]int{}
		}
		want[r.family][r.chain]++
	}
	for f := range want {
		var err error
		if found[f], err = t.rules(f); err != nil {
			return err
		}
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
					want[nftables.TableFamilyINet][chainOf(k)] = len(rulesOf(k))
				}
			}
		}
	}
	for f, chains := range want {
		for name, n := range chains {
			if found[f][name] != n {
				return fmt.Errorf("chain %s of the table %s has %d rules, not %d: %w", name, t.cfg.Name, found[f][name], n, errShape)
			}
		}
		for name := range found[f] {
			// A way without a way to it was about to be made.
			if chains[name] == 0 && !strings.Contains(name, "-one-of-") {
				return fmt.Errorf("chain %s of the table %s is nobody's: %w", name, t.cfg.Name, errShape)
			}
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

// rules counts the rules of a table by their chains.
func (t *Table) rules(f nftables.TableFamily) (map[string]int, error) {
	body := append([]byte{byte(f), 0, 0, 0}, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(t.cfg.Name)).Serialize()...)
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

// Remove takes the tables away.
func (t *Table) Remove() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watcher.SetActive(false)
	t.shape, t.book, t.ways = nil, newBook(), map[wayKey]bool{}
	for _, table := range []*nftables.Table{t.names.inet, t.names.bridge} {
		if err := t.connect(); err != nil {
			return err
		}
		t.conn.AddTable(table)
		t.conn.DelTable(table)
		if err := t.conn.Flush(); err != nil {
			t.disconnect()
			if table == t.names.bridge && noBridgeFamily(err) {
				continue
			}
			return t.explain(err)
		}
	}
	return nil
}

// noBridgeFamily says whether a transaction has failed because the kernel has no nftables for bridges.
func noBridgeFamily(err error) bool {
	var op *net.OpError
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.ENOENT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT)
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
