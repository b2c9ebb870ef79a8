package hold

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/quota"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// project keeps a volume in a directory that is a project of its own, whose quota holds its size (ext4, xfs).
type project struct{}

func (p project) Make(_ context.Context, v Volume) error {
	if err := os.Mkdir(v.Data, dataMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(v.Data, dataMode); err != nil {
		return err
	}
	if err := quota.SetProject(v.Data, v.QuotaID); err != nil {
		return err
	}
	if err := quota.LimitProject(v.Data, v.QuotaID, v.Size); err != nil {
		return err
	}
	return atomicfile.SyncDir(v.Dir)
}

func (p project) Attach(ctx context.Context, v Volume) error { return p.Resize(ctx, v) }

func (project) Resize(_ context.Context, v Volume) error {
	return quota.LimitProject(v.Data, v.QuotaID, v.Size)
}

func (project) Detach(context.Context, Volume) error { return nil }

// Discard takes the limit away, which would outlive the files.
func (project) Discard(_ context.Context, v Volume) error {
	err := quota.LimitProject(v.Dir, v.QuotaID, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func (project) Usage(_ context.Context, v Volume) (Usage, error) {
	used, err := quota.ProjectUsed(v.Data, v.QuotaID)
	return Usage{Used: int64(used.Bytes), Size: v.Size}, err // disks are smaller than what int64 holds
}
