package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// project keeps a volume in a directory that is a project of its own, whose quota holds its size (ext4, xfs).
type project struct{}

// hasProjects says whether a directory is on a file system that counts projects and holds their limits.
func hasProjects(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	var stat quotaStat
	if err := quotactl(int(d.Fd()), qXGetQstat, 0, &stat); err != nil {
		return false
	}
	const both = projectCounted | projectHeld
	return stat.flags&both == both
}

// projectFree says whether no file below dir's file system is of a project.
func projectFree(dir string, id uint32) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	var q diskQuota
	err = quotactl(int(d.Fd()), qGetQuota, id, &q)
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || err == nil && q.space == 0
}

func (p project) Make(ctx context.Context, v Volume) error {
	if err := os.Mkdir(v.Data, dataMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(v.Data, dataMode); err != nil {
		return err
	}
	d, err := os.Open(v.Data)
	if err != nil {
		return err
	}
	defer d.Close()
	var attr fsXattr
	if err := ioctl(int(d.Fd()), fsIocGetXattr, &attr); err != nil {
		return fmt.Errorf("project of %s: %w", v.Data, err)
	}
	attr.project, attr.flags = v.QuotaID, attr.flags|projectInherits
	if err := ioctl(int(d.Fd()), fsIocSetXattr, &attr); err != nil {
		return fmt.Errorf("make %s a project: %w", v.Data, err)
	}
	if err := p.limit(d, v.QuotaID, v.Size); err != nil {
		return err
	}
	return atomicfile.SyncDir(v.Dir)
}

// limit holds a project to so many bytes; 0: to none.
func (project) limit(d *os.File, id uint32, size int64) error {
	if id == 0 {
		return fmt.Errorf("%s has no project: its size is not held", d.Name())
	}
	q := diskQuota{hard: uint64(size) / 1024, valid: quotaLimits} // it is not negative
	if err := quotactl(int(d.Fd()), qSetQuota, id, &q); err != nil {
		return fmt.Errorf("limit the project %d of %s (is its file system mounted with prjquota?): %w", id, d.Name(), err)
	}
	return nil
}

func (p project) Attach(ctx context.Context, v Volume) error { return p.Resize(ctx, v) }

func (p project) Resize(_ context.Context, v Volume) error {
	d, err := os.Open(v.Data)
	if err != nil {
		return err
	}
	defer d.Close()
	return p.limit(d, v.QuotaID, v.Size)
}

func (project) Detach(context.Context, Volume) error { return nil }

// Discard takes the limit away, which would outlive the files.
func (p project) Discard(_ context.Context, v Volume) error {
	d, err := os.Open(v.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := p.limit(d, v.QuotaID, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func (project) Usage(_ context.Context, v Volume) (Usage, error) {
	d, err := os.Open(v.Data)
	if err != nil {
		return Usage{}, err
	}
	defer d.Close()
	var q diskQuota
	err = quotactl(int(d.Fd()), qGetQuota, v.QuotaID, &q)
	return Usage{Used: int64(q.space), Size: v.Size}, err
}
