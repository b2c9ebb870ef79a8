package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/storage/archive"
	"monopod.dev/monopod/internal/storage/hold"
	"monopod.dev/monopod/internal/storage/plan"
	"monopod.dev/monopod/internal/storage/snapshot"
)

// Written tells what was written of an archive.
type Written = archive.Result

// Export writes an archive of a claim's volume: as it is at one moment where it can be had so, else file by file. What was written before an error is of no use.
func (p *Copies) Export(ctx context.Context, s Source, to io.Writer) (archive.Result, error) {
	if err := p.Ask(); err != nil {
		return archive.Result{}, err
	}
	_, v, err := p.volumeOf(ctx, s)
	if err != nil {
		return archive.Result{}, err
	}
	if !hold.AtOnce(v.Hold) {
		return p.exportLive(ctx, s, to)
	}
	r, err := p.take(ctx, s, snapshot.Record{Name: temporaryName(), Temporary: true})
	if errdefs.IsNotImplemented(err) {
		return p.exportLive(ctx, s, to)
	}
	if err != nil {
		return archive.Result{}, err
	}
	defer func() {
		if err := p.forgetSnapshot(ctx, r.Name); err != nil {
			p.log.WarnContext(ctx, "the snapshot of an export stays until the next start", "snapshot", r.Name, "error", err)
		}
	}()
	return p.pack(ctx, r, to)
}

// ExportSnapshot writes an archive of a snapshot.
func (p *Copies) ExportSnapshot(ctx context.Context, name string, to io.Writer) (archive.Result, error) {
	r, release, err := p.snapshots.Use(name)
	if err != nil {
		return archive.Result{}, err
	}
	defer release()
	return p.pack(ctx, r, to)
}

// pack writes an archive of a snapshot that nobody removes meanwhile.
func (p *Copies) pack(ctx context.Context, r snapshot.Record, to io.Writer) (archive.Result, error) {
	root, release, err := p.still(r).Open()
	if err != nil {
		return archive.Result{}, err
	}
	defer release()
	return archive.Write(ctx, to, head(r), root)
}

func head(r snapshot.Record) archive.Head {
	return archive.Head{Taken: r.Taken, AtOnce: r.AtOnce, Claim: archive.Claim{
		Namespace: r.Claim.Namespace, Name: r.Claim.Name, Class: r.Class, AccessModes: r.AccessModes, Block: r.Block, Size: r.Requested,
	}}
}

// exportLive writes an archive of a volume of which no snapshot can be made.
func (p *Copies) exportLive(ctx context.Context, s Source, to io.Writer) (none archive.Result, err error) {
	claim, v, err := p.volumeOf(ctx, s)
	if err != nil {
		return none, err
	}
	if err := p.unused(ctx, s); err != nil {
		return none, err
	}
	root, err := p.openLive(ctx, v)
	if err != nil {
		return none, err
	}
	defer root.Close()
	result, err := archive.Write(ctx, to, head(snapshot.Record{
		Taken: time.Now().UTC().Truncate(time.Second), Claim: plan.Claimant{Namespace: s.Namespace, Name: s.Claim}, Class: v.Class, AccessModes: claim.Spec.AccessModes,
		Block: v.Block, Requested: plan.Requested(claim),
	}), root)
	if err != nil {
		return result, err
	}
	// What vanishes from a volume that goes is not missed by who reads it.
	if now, _, err := p.volumeOf(ctx, s); err != nil || now.UID != claim.UID {
		return result, errors.Join(err, fmt.Errorf("the claim %s has gone meanwhile: the archive is not whole: %w", s, errdefs.ErrAborted))
	}
	return result, p.unused(ctx, s)
}

// openLive opens what is in a volume.
func (p *Copies) openLive(ctx context.Context, v plan.Record) (*os.File, error) {
	unlock, err := p.turns.Lock(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return p.holders.OpenLive(ctx, p.of(v), v.Hold)
}
