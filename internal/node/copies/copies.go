// Package copies has the administration socket's requests for snapshots, exports and imports of volumes done by the provisioner.
package copies

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/node/status"
	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/snapshot"
)

// Of is what a node does whose storage is told of.
func Of(told *status.Storage) admin.Copies { return &copies{told} }

type copies struct{ told *status.Storage }

func (c *copies) maker() (*storage.Copies, error) {
	if c.told.Copies == nil {
		return nil, fmt.Errorf("volumes are not made for claims: %w: %w", c.told.Problem, errdefs.ErrUnavailable)
	}
	return c.told.Copies, nil
}

// Snapshot implements admin.Copies.
func (c *copies) Snapshot(ctx context.Context, req protocol.SnapshotRequest) (none protocol.Snapshot, err error) {
	p, err := c.maker()
	if err != nil {
		return none, err
	}
	r, err := p.Snapshot(ctx, source(req.Claim, req.InUse), req.Name)
	if err != nil {
		return none, err
	}
	all, err := p.Snapshots(ctx)
	if i := slices.IndexFunc(all, func(t storage.TakenTold) bool { return t.Record.Name == r.Name }); i >= 0 {
		return taken(all[i]), nil
	}
	return taken(storage.TakenTold{Record: r, Err: err}), nil
}

func source(c protocol.Claim, inUse bool) storage.Source {
	return storage.Source{Namespace: c.Namespace, Claim: c.Claim, InUse: inUse}
}

// Snapshots implements admin.Copies.
func (c *copies) Snapshots(ctx context.Context) (protocol.Snapshots, error) {
	told := protocol.Snapshots{Snapshots: []protocol.Snapshot{}}
	p, err := c.maker()
	if err != nil {
		return told, err
	}
	all, err := p.Snapshots(ctx)
	for _, t := range all {
		told.Snapshots = append(told.Snapshots, taken(t))
	}
	return told, err
}

func taken(t storage.TakenTold) protocol.Snapshot {
	r := t.Record
	s := protocol.Snapshot{
		Name: r.Name, Namespace: r.Claim.Namespace, Claim: r.Claim.Name, Volume: r.Volume, Class: r.Class, Size: r.Size, HeldBy: string(r.Hold), Block: r.Block, AtOnce: r.AtOnce,
		State: protocol.SnapshotReady, Used: t.Used, Own: t.Own, Path: t.Path,
	}
	switch {
	case r.Phase == snapshot.Taking:
		s.State = protocol.SnapshotTaking
	case r.Phase == "":
		s.State = protocol.SnapshotUnreadable
	}
	if !r.Taken.IsZero() {
		s.Taken = &r.Taken
	}
	if t.Err != nil {
		s.Problem = t.Err.Error()
	}
	return s
}

// RemoveSnapshot implements admin.Copies.
func (c *copies) RemoveSnapshot(ctx context.Context, name string) error {
	p, err := c.maker()
	if err != nil {
		return err
	}
	return p.RemoveSnapshot(ctx, name)
}

// Restore implements admin.Copies.
func (c *copies) Restore(ctx context.Context, name string, req protocol.CopyRequest) (none protocol.Copied, err error) {
	p, err := c.maker()
	if err != nil {
		return none, err
	}
	t, err := target(req)
	if err != nil {
		return none, err
	}
	made, err := p.Restore(ctx, name, t)
	if err != nil {
		return none, err
	}
	return copied(made), nil
}

// Import implements admin.Copies.
func (c *copies) Import(ctx context.Context, req protocol.CopyRequest, archive io.Reader) (none protocol.Copied, err error) {
	p, err := c.maker()
	if err != nil {
		return none, err
	}
	t, err := target(req)
	if err != nil {
		return none, err
	}
	made, err := p.Import(ctx, t, archive)
	if err != nil {
		return none, err
	}
	return copied(made), nil
}

// target is the claim that is asked for.
func target(req protocol.CopyRequest) (storage.Target, error) {
	t := storage.Target{Namespace: req.Namespace, Claim: req.Claim.Claim, Class: req.Class}
	if req.Size == "" {
		return t, nil
	}
	q, err := resource.ParseQuantity(req.Size)
	if err != nil || q.Sign() <= 0 {
		return t, fmt.Errorf("the size is %q: use a quantity such as 10Gi: %w", req.Size, errdefs.ErrInvalidArgument)
	}
	t.Size = &q
	return t, nil
}

func copied(m storage.Made) protocol.Copied {
	return protocol.Copied{
		Claim: protocol.Claim{Namespace: m.Namespace, Claim: m.Claim}, Volume: m.Volume, Class: m.Class, Size: m.Size, HeldBy: string(m.Hold), LeftOut: leftOut(m.LeftOut, m.More),
	}
}

func leftOut(all []string, more int) protocol.LeftOut {
	return protocol.LeftOut{LeftOut: append([]string{}, all...), More: more}
}

// Export implements admin.Copies.
func (c *copies) Export(ctx context.Context, req protocol.ExportRequest, to io.Writer) (protocol.Exported, error) {
	p, err := c.maker()
	if err != nil {
		return protocol.Exported{}, err
	}
	write := func() (storage.Written, error) { return p.Export(ctx, source(req.Claim, req.InUse), to) }
	if req.Snapshot != "" {
		write = func() (storage.Written, error) { return p.ExportSnapshot(ctx, req.Snapshot, to) }
	}
	r, err := write()
	return protocol.Exported{Entries: r.Entries, Bytes: r.Bytes, LeftOut: leftOut(r.LeftOut, r.More)}, err
}
