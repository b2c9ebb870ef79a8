package storage

import (
	"context"
	"errors"
	"io/fs"

	"monopod.dev/monopod/internal/storage/hold"
	"monopod.dev/monopod/internal/storage/plan"
)

// State is how a volume is, for people.
type State int

// The states.
const (
	Creating State = iota
	Ready
	Removing
	// Missing: what its record tells of is not on the disk.
	Missing
	// Stray: there is no PersistentVolume for it.
	Stray
	// Unreadable: its record cannot be read.
	Unreadable
)

// Told is what is told of a volume.
type Told struct {
	State State
	// Record is as far as it is known: of one that is Unreadable, the name alone.
	Record plan.Record
	Path   string
	// Used is how many bytes are in it; nil: that was not asked, or not found out. Err is why the volume is unreadable, or its use not known.
	Used *int64
	Err  error
	// Snapshots are the names of those that there are of it.
	Snapshots []string
}

// Report tells of all volumes, those whose record can be read first; use: how full each is as well, as far as ctx lets it. It is safe for concurrent use.
func (p *Provisioner) Report(ctx context.Context, use bool) []Told {
	var all []Told
	of, serr := p.snapshots.Of()
	if serr != nil {
		p.log.WarnContext(ctx, "the snapshots of volumes cannot be read", "error", serr)
	}
	for _, r := range p.store.All() {
		t := Told{State: p.state(r), Record: r, Path: p.store.Path(r.Name), Snapshots: of[r.Name]}
		if use && t.State != Missing && t.State != Removing {
			t.Used, t.Err = p.used(ctx, r)
		}
		all = append(all, t)
	}
	for name, err := range p.store.Odd() {
		all = append(all, Told{State: Unreadable, Record: plan.Record{Name: name}, Path: p.store.Path(name), Err: err})
	}
	return all
}

// state is that of a volume. Which PersistentVolumes there are is known when the API server has answered.
func (p *Provisioner) state(r plan.Record) State {
	switch {
	case r.Phase == plan.Deleting:
		return Removing
	case r.Phase == plan.Creating, r.Phase == plan.Filling:
		return Creating
	case !p.store.Has(r.Name):
		return Missing
	}
	if p.knows.Load() {
		if _, there, err := p.volumes.GetByKey(r.Name); err == nil && !there {
			return Stray
		}
	}
	return Ready
}

func (p *Provisioner) used(ctx context.Context, r plan.Record) (*int64, error) {
	h, err := p.holders.Of(r.Hold)
	if err != nil {
		return nil, err
	}
	var u hold.Usage
	if u, err = h.Usage(ctx, p.of(r)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it is being made, or goes
		}
		return nil, err
	}
	return &u.Used, nil
}
