package table

import (
	"github.com/google/nftables"
)

// intact says whether the kernel has what was written last: as many rules in each chain, and the elements of each set. What cannot be read is not. It is called
// with the lock held.
func (t *Table) intact() (same bool) {
	err := t.transact(func(w *writer) error {
		same = w.hasRules(t.rules) && w.hasElements(t.installed)
		return nil
	})
	return err == nil && same
}

func (w *writer) hasRules(want map[string]int) bool {
	chains, err := w.conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false
	}
	have := map[string]bool{}
	for _, c := range chains {
		if c.Table.Name != w.cfg.Name() {
			continue
		}
		rules, err := w.conn.GetRules(c.Table, c)
		if have[c.Name] = true; err != nil || len(rules) != want[c.Name] {
			return false
		}
	}
	for name := range want {
		if !have[name] {
			return false
		}
	}
	return true
}

func (w *writer) hasElements(want content) bool {
	for _, s := range setSpecs() {
		have, err := w.conn.GetSetElements(s.set(w.table()))
		if err != nil || len(have) < len(want[s.name]) {
			return false
		}
		if s.interval || s.ranges { // of which the kernel tells both ends in its own way
			continue
		}
		if len(have) != len(want[s.name]) {
			return false
		}
		for _, e := range have {
			gives, known := want[s.name][element{key: string(e.Key)}]
			if !known || s.gives && string(e.Val) != string(s.value(gives)) {
				return false
			}
		}
	}
	return true
}
