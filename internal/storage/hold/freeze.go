package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/reflink"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Numbers of calls that golang.org/x/sys/unix lacks, of linux/fs.h.
const (
	fsIocFreeze = 0xc0045877
	fsIocThaw   = 0xc0045878
)

// maxFrozen is how long pods wait with their writes for a snapshot at most.
const maxFrozen = 5 * time.Second

// errLate: a file system was thawed before what was done meanwhile had ended.
var errLate = fmt.Errorf("it could not be copied in %s, for which pods would have had to wait with their writes", maxFrozen)

// frozen is a file system that is whole on its disk, and to which nobody can write. It is thawed by thaw, and by itself after maxFrozen.
type frozen struct {
	dir   *os.File
	timer *time.Timer

	mu     sync.Mutex
	thawed bool
	err    error // of thawing it
}

// freeze stops all writes to the file system that a directory is on. Its record says already that this may happen: whoever finds it after a kill thaws it.
func freeze(dir string) (*frozen, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := synced(d); err != nil { // most is on the disk then, and the rest takes less time
		d.Close()
		return nil, err
	}
	if err := unix.IoctlSetInt(int(d.Fd()), fsIocFreeze, 0); err != nil {
		d.Close()
		if errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("the file system at %s is frozen by somebody else (fsfreeze --unfreeze %s): %w", dir, dir, err)
		}
		return nil, fmt.Errorf("freeze the file system at %s: %w", dir, err)
	}
	f := &frozen{dir: d}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = time.AfterFunc(maxFrozen, func() { f.end() })
	return f, nil
}

// end thaws the file system, if that has not been done; first: it has not.
func (f *frozen) end() (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed {
		return false
	}
	f.thawed = true
	f.err = unix.IoctlSetInt(int(f.dir.Fd()), fsIocThaw, 0)
	f.dir.Close() // nothing was written to it
	return true
}

// held says whether the file system is frozen still.
func (f *frozen) held() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed {
		return errLate
	}
	return nil
}

// thaw ends it. An error says that it was not frozen all the time, or still is.
func (f *frozen) thaw() error {
	f.timer.Stop()
	first := f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return fmt.Errorf("thaw the file system at %s (fsfreeze --unfreeze does it): %w", f.dir.Name(), f.err)
	}
	if !first {
		return errLate
	}
	return nil
}

// Thaw has pods write to a volume again that a kill may have left frozen.
func Thaw(v Volume) error {
	d, err := os.Open(v.Data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	// Of the volume's own file system only: where nothing is mounted, Data is on the disk's.
	var at, above unix.Stat_t
	if err := errors.Join(unix.Fstat(int(d.Fd()), &at), unix.Stat(v.Dir, &above)); err != nil || at.Dev == above.Dev {
		return err
	}
	if err := unix.IoctlSetInt(int(d.Fd()), fsIocThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: it is not frozen
		return fmt.Errorf("thaw the file system at %s: %w", v.Data, err)
	}
	return nil
}

// take implements taker: the image shares its blocks with the snapshot. A file system in it is frozen meanwhile, so that it needs no repair; of a block device the snapshot
// is what a loss of power at that moment would have left: the kernel shares the whole file in one step.
func (i image) take(ctx context.Context, v Volume, s Snapshot) (err error) {
	if err := i.Attach(ctx, v); err != nil {
		return err
	}
	from, err := os.Open(i.path(v))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(s.path()+".new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := reflink.Can(from, to); err != nil {
		return err
	}
	if v.Block {
		if err = flush(v); err == nil {
			err = reflink.Clone(from, to)
		}
	} else {
		err = i.whileFrozen(ctx, v, from, to)
	}
	if err == nil {
		err = synced(to) // until then btrfs does not tell which blocks are shared
	}
	if err != nil {
		return err
	}
	// The disk is to have the room that the image's file system counts on: for each block that is the snapshot's as well, if it is written to.
	owes, err := Owed(v)
	if err != nil {
		return err
	}
	if err := New(filepath.Dir(v.Dir)).Spare(owes, v.Owed); err != nil {
		return fmt.Errorf("what is written to an image after a snapshot takes new room, up to all that is in it: %w", err)
	}
	return whole(to, s.path())
}

// whileFrozen has a file share all that is in the image, whose file system nobody writes to meanwhile.
func (image) whileFrozen(ctx context.Context, v Volume, from, to *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	f, err := freeze(v.Data)
	if err != nil {
		return err
	}
	err = failpoint.Hit("storage/snapshot/frozen")
	if err == nil {
		err = reflink.Pieces(from, to, info.Size(), func() error { return errors.Join(f.held(), ctx.Err()) })
	}
	return errors.Join(err, f.thaw())
}
