package hold

import (
	"context"
	"os"

	"monopod.dev/monopod/internal/host/quota"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// qgroup keeps a volume in a subvolume of btrfs, whose quota group holds what it may refer to.
type qgroup struct{}

func (q qgroup) Make(ctx context.Context, v Volume) error {
	if err := quota.MakeSubvolume(v.Data); err != nil {
		return err
	}
	if err := os.Chmod(v.Data, dataMode); err != nil {
		return err
	}
	if err := q.Resize(ctx, v); err != nil {
		return err
	}
	return atomicfile.SyncDir(v.Dir)
}

func (q qgroup) Attach(ctx context.Context, v Volume) error { return q.Resize(ctx, v) }

func (qgroup) Resize(_ context.Context, v Volume) error { return quota.LimitSubvolume(v.Data, v.Size) }

func (qgroup) Detach(context.Context, Volume) error { return nil }

// Discard removes the subvolume at once, where it can, and the group with it. What stays goes with the directory.
func (qgroup) Discard(_ context.Context, v Volume) error { return quota.RemoveSubvolume(v.Data) }

func (qgroup) Usage(_ context.Context, v Volume) (Usage, error) {
	used, err := quota.SubvolumeUsed(v.Data)
	return Usage{Used: int64(used.Bytes), Size: v.Size}, err // disks are smaller than what int64 holds
}

// take implements taker: the kernel does it in one step, between two writes.
func (qgroup) take(_ context.Context, v Volume, s Snapshot) error {
	return quota.SnapshotSubvolume(v.Data, s.path(), true)
}

// from has a new volume be what a snapshot is, at once.
func (q qgroup) from(ctx context.Context, s Snapshot, v Volume) error {
	if err := quota.SnapshotSubvolume(s.path(), v.Data, false); err != nil {
		return err
	}
	if err := q.Resize(ctx, v); err != nil {
		return err
	}
	return atomicfile.SyncDir(v.Dir)
}
