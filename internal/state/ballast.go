package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/preallocate"
)

const (
	// leastAhead is the room in bytes that the file always has beyond what is used. A transaction writes the pages anew that it changes, some
	// tens of kB, and those of the one before are free again after it.
	leastAhead = 2 << 20
	// stepAhead is what is taken at a time.
	stepAhead = 2 * leastAhead
)

// ballasted is how much of the file has its room on the disk.
type ballasted struct {
	mu   sync.Mutex
	size int64 // of the file's beginning
	used int64 // as of the last transaction
	err  error // why the room ahead is less than it should be; nil: it is not
}

// keepAhead takes room for the next transactions, where less than leastAhead is left.
func (db *DB) keepAhead(used int64) {
	b := &db.ballast
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = used
	b.take(db.path)
}

func (b *ballasted) take(path string) {
	b.err = nil
	if b.used+leastAhead <= b.size {
		return
	}
	want := ((b.used+leastAhead)/stepAhead + 1) * stepAhead
	if b.err = preallocate.File(path, want); b.err == nil {
		b.size = want
	}
}

// Room is nil when there is room for what begins, and for its end; else it is errdefs.ErrResourceExhausted, and nothing should begin that has
// to be recorded until it has ended: the room that is left is for that. It is errdefs.ErrUnavailable when the file is not there any more.
func (db *DB) Room() error {
	b := &db.ballast
	b.mu.Lock()
	defer b.mu.Unlock()
	b.take(db.path)
	err := b.err
	if err == nil {
		err = full(db.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is gone, or its disk is no longer mounted: start anew, once it is there: %w: %w", db.path, err, errdefs.ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("the disk of %s is full; what is left is kept for what runs: make room on it: %w: %w", db.path, err, errdefs.ErrResourceExhausted)
	}
	return nil
}

// leastFree is how many bytes are free of a disk that is not full.
const leastFree = 1 << 20

func full(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if st.Blocks > 0 && st.Bavail*uint64(st.Bsize) < leastFree { // no blocks: they are not counted
		return unix.ENOSPC
	}
	return nil
}
