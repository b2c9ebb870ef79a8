package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/storage/hold"
	"monopod.dev/monopod/internal/storage/plan"
	records "monopod.dev/monopod/internal/storage/record"
	"monopod.dev/monopod/internal/storage/snapshot"
)

// Claims are the claims whose volumes a node has in a directory, and the snapshots, as Clear would remove them. It changes nothing.
func Claims(dir, node string) (all []string, err error) {
	store, err := records.Open(dir, node, false, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range store.All() {
		all = append(all, r.Claim.String())
	}
	slices.Sort(all)
	taken, _, err := snapshot.New(dir, node, store.Bin()).All()
	for _, r := range taken {
		all = append(all, fmt.Sprintf("the snapshot %s of %s", r.Name, r.Claim))
	}
	return all, err
}

// Clear is for a node that goes: with volumes it removes those that have a record, with all that is in them, and the snapshots. Then what was thrown away goes, and the directory,
// if it is empty. What has no record stays. No pod has a volume any more, and nothing else runs. It may be repeated.
func (p *Provisioner) Clear(ctx context.Context, volumes bool) error {
	var errs []error
	for _, r := range p.store.All() {
		if !volumes {
			break
		}
		if err := p.clear(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", r.Name, err))
		}
	}
	if volumes {
		errs = append(errs, p.thawAll(), p.snapshots.Clear(ctx, hold.Drop))
	}
	return errors.Join(append(errs, p.store.Leave(ctx))...)
}

func (p *Provisioner) clear(ctx context.Context, r plan.Record) error {
	h, err := p.holders.Of(r.Hold)
	if err != nil {
		return err
	}
	// The record need not say that it goes: what a kill leaves is removed by whoever repeats it.
	if err := h.Detach(ctx, p.of(r)); err != nil {
		return err
	}
	if err := mount.UnmountBelow(p.store.Path(r.Name)); err != nil { // what is mounted is not the volume's
		return err
	}
	if err := h.Discard(ctx, p.of(r)); err != nil {
		return err
	}
	return p.store.Throw(ctx, r.Name)
}
