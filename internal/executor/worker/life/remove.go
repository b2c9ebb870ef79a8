//go:build cgo

package life

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// UndoEarlier removes what an earlier Create has left that failed, and could not be undone then: a process of it may have hung in the kernel.
func (l *Life) UndoEarlier(ctx context.Context, id ids.ContainerID) error {
	left, err := l.cfg.Records.One(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.Undo(ctx, left)
}

// Undo removes whatever a Create that failed, or was cut short, has left.
func (l *Life) Undo(ctx context.Context, rec record.Record) error {
	// The release comes before the journal: once it is acknowledged, the keeper writes no more of this process.
	err := errors.Join(l.removeRemains(ctx, rec), l.cfg.Keeper.Release(ctx, hold.ContainerKey(rec.ID)), l.cfg.Journal.Remove(rec.PID, rec.StartTime))
	if err != nil {
		return fmt.Errorf("clean up: %w", err) // the record stays: the next worker tries again
	}
	return l.cfg.Records.Remove(rec.ID)
}

// removeRemains ends all processes of the container, and removes its cgroup and what its engine has of it.
func (l *Life) removeRemains(ctx context.Context, rec record.Record) error {
	if err := rec.Group().Kill(ctx, unix.SIGKILL); err != nil {
		return err
	}
	l.reapRemains(rec)
	if err := unpin(rec); err != nil {
		return err
	}
	l.GroupEnded(rec)
	if err := l.cfg.Remove(ctx, rec); err != nil {
		return err
	}
	if err := rec.Group().Remove(); err != nil {
		return err
	}
	return rec.Group().Stop()
}

// reapRemains takes away the init process of a container that will never be monitored.
func (l *Life) reapRemains(rec record.Record) {
	if rec.PID == 0 {
		return
	}
	if stat, err := proc.ReadStat(rec.PID); err == nil && stat.StartTime == rec.StartTime && stat.PPID == os.Getpid() && stat.Dead() {
		if err := proc.Reap(rec.PID); err != nil {
			l.cfg.Log.Warn("a process is left a zombie", "container", rec.ID, "pid", rec.PID, "error", err)
		}
	}
}

// Delete removes all that is left of a container whose process has ended. Each step may find itself done already.
func (l *Life) Delete(ctx context.Context, c *table.Container) error {
	if err := l.cfg.Table.Change(c, func(r *record.Record) { r.Stage = record.StageDeleting }); err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/deleting"); err != nil {
		return err
	}
	rec := c.Record()
	if err := l.removeRemains(ctx, rec); err != nil {
		return err
	}
	io := c.Stdio()
	c.SetStdio(nil)
	if io != nil {
		io.Close()
	}
	err := errors.Join(l.cfg.Keeper.Release(ctx, hold.ContainerKey(c.ID)), l.cfg.Journal.Remove(rec.PID, rec.StartTime), l.cfg.Records.Remove(c.ID))
	if err != nil {
		return err
	}
	l.cfg.Table.Delete(c)
	return nil
}

// unpin takes away what a pod's init has mounted: nothing but namespaces, should the path be somebody else's by now.
func unpin(rec record.Record) error {
	if rec.Pin == "" {
		return nil
	}
	for {
		var st unix.Statfs_t
		if err := unix.Statfs(rec.Pin, &st); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return &os.PathError{Op: "statfs", Path: rec.Pin, Err: err}
		}
		if st.Type != unix.NSFS_MAGIC {
			return nil
		}
		if err := unix.Unmount(rec.Pin, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unpin the PID namespace at %s: %w", rec.Pin, err)
		}
	}
}
