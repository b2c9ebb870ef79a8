package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/tree"
)

// maxLinked bounds how many files with several names are remembered to be counted once; more are counted by name.
const maxLinked = 1 << 16

// walker counts what a directory takes on its file system: blocks and inodes, at any depth. The tree is a container's to change while it is
// walked over.
type walker struct {
	ctx  context.Context
	turn chan struct{}

	began         time.Time     // of this turn
	took          time.Duration // in all turns
	linked        map[uint64]struct{}
	bytes, inodes uint64
	unfinished    bool // not all was counted
}

// walk counts. A directory that is not there is an error; what vanishes below it meanwhile is none.
func (w *walker) walk(dir string) error {
	if err := w.take(); err != nil {
		return err
	}
	defer w.yield()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	w.add(&st)
	err = tree.Walk(fd, w)
	if errors.Is(err, tree.ErrUnfinished) {
		w.unfinished, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("walk over %s: %w", dir, err)
	}
	return nil
}

// take waits for this walk's turn, and yield ends it.
func (w *walker) take() error {
	select {
	case w.turn <- struct{}{}:
		w.began = time.Now()
		return nil
	case <-w.ctx.Done():
		w.began = time.Time{}
		return w.ctx.Err()
	}
}

func (w *walker) yield() {
	if !w.began.IsZero() {
		w.took += time.Since(w.began)
		w.began = time.Time{}
		<-w.turn
	}
}

// Pause lets others have their turn.
func (w *walker) Pause() error {
	if time.Since(w.began) <= layerTurn {
		return nil
	}
	w.yield()
	return w.take()
}

// Visit counts one file.
func (w *walker) Visit(_ string, _ int, st *unix.Stat_t) bool {
	w.add(st)
	return true
}

// add counts one file; one with several names once.
func (w *walker) add(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if _, seen := w.linked[st.Ino]; seen {
			return
		}
		if w.linked == nil {
			w.linked = map[uint64]struct{}{}
		}
		if len(w.linked) < maxLinked {
			w.linked[st.Ino] = struct{}{}
		}
	}
	w.inodes++
	w.bytes += uint64(st.Blocks) * 512
}
