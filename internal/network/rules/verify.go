package rules

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"

	"monopod.dev/monopod/internal/network/lease"
)

// check says what is missing of the tables.
func (f *firewall) check() error {
	if err := f.checkChains(); err != nil {
		return err
	}
	if err := f.checkPorts(); err != nil {
		return err
	}
	return f.checkSources()
}

// checkChains says what is missing of the chains and their rules.
func (f *firewall) checkChains() error {
	chains, err := f.conn.ListChainsOfTableFamily(f.table.Family)
	if err != nil {
		return f.explain("listing the chains", err)
	}
	have := map[string]*nftables.Chain{}
	for _, c := range chains {
		if c.Table.Name == f.table.Name {
			have[c.Name] = c
		}
	}
	if len(have) == 0 {
		return fmt.Errorf("network: the nftables table %q is not there (was the rule set flushed?): %w", f.table.Name, errdefs.ErrUnavailable)
	}
	for name, rules := range f.known.installed {
		c := have[name]
		if c == nil {
			return fmt.Errorf("network: the chain %q of the nftables table %q is not there: %w", name, f.table.Name, errdefs.ErrUnavailable)
		}
		found, err := f.rulesOf(c)
		if err != nil {
			return err
		}
		if len(found) != rules {
			return fmt.Errorf("network: the chain %q of the nftables table %q has %d rules, not %d (was the rule set flushed?): %w",
				name, f.table.Name, len(found), rules, errdefs.ErrUnavailable)
		}
	}
	if len(f.known.installed) == 0 {
		return fmt.Errorf("network: the nftables table %q is an earlier process's: %w", f.table.Name, errdefs.ErrUnavailable)
	}
	return nil
}

// admitted are the leases whose elements are to be in the tables: not of a sandbox that is only about to be connected, nor with
// ports of one that is prepared.
func (f *firewall) admitted(ports bool) (recs []lease.Lease) {
	for _, rec := range f.cfg.Leases.All() {
		if mapped, known := f.known.elementsOf[rec.Interface]; known && (mapped || !ports) {
			recs = append(recs, rec)
		}
	}
	return recs
}

// checkPorts says whether the sets hold as much as they should.
func (f *firewall) checkPorts() error {
	leases := f.admitted(true)
	for _, fam := range families {
		var want elements
		for _, rec := range leases {
			if !rec.Leaving {
				want.add(portElements(fam, rec))
			}
		}
		var errs []error
		f.sets(fam).each(want, func(set *nftables.Set, with []nftables.SetElement) {
			errs = append(errs, f.checkElements(set, len(with)))
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// checkSources says whether the guard has all sandboxes.
func (f *firewall) checkSources() error {
	if !f.guards {
		return nil
	}
	leases := f.admitted(false)
	for _, fam := range sourceFamilies {
		want := 0
		for _, rec := range leases {
			want += len(sourceElements(fam, rec))
		}
		if err := f.checkElements(f.sources(fam), want); err != nil {
			return err
		}
	}
	return nil
}
