package table

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// A former version had pods as ports of a bridge, and a second table of this name, of the family bridge, which had frames go to the host. What the host was given by the
// bridge the table of the family inet judged as it does now, by the same chains and sets.

// tables are those of this name that are there, of this version and of a former one. A kernel without a family has none of it.
func (w *writer) tables() (all []*nftables.Table, err error) {
	tables, err := w.conn.ListTables()
	if errors.Is(err, unix.EINVAL) { // a kernel without nf_tables, for which this is no request
		return nil, fmt.Errorf("%w: %w", err, unix.EOPNOTSUPP)
	}
	for _, one := range tables {
		if one.Name == w.cfg.Name() && (one.Family == nftables.TableFamilyINet || one.Family == nftables.TableFamilyBridge) {
			all = append(all, one)
		}
	}
	return all, err
}

// former is the table that a former version has left beside the one that is written now; nil: there is none.
func (w *writer) former() (*nftables.Table, error) {
	all, err := w.tables()
	for _, one := range all {
		if one.Family == nftables.TableFamilyBridge {
			return one, err
		}
	}
	return nil, err
}

// Adopt has the rules that a former version has left judge what is routed, too, until Apply or Remove: pods are taken off their bridge before it is known again which
// policies there are. It is called before they are. Rules that are there twice say the same.
func (t *Table) Adopt() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.transact(func(w *writer) error {
		former, err := w.former()
		if err != nil || former == nil {
			return err
		}
		w.judged(&nftables.Chain{Name: forwardChain, Table: w.table()})
		return nil
	})
	return explain("having the rules of a former version judge what is routed", t.cfg.Name(), err)
}
