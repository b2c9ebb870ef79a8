package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds how many directories are open at once. What lies deeper is not counted, which is logged.
	maxDepth = 256
	// maxLinked bounds how many files with several names are remembered to be counted once; more are counted by name.
	maxLinked = 1 << 16
	// dirBatch is how many names of a directory are held at a time.
	dirBatch = 256
)

// walker counts what a directory takes on its file system: blocks and inodes. The tree is a container's to change while it is
// walked over: it is looked at through open directories, never by path, and no link is followed.
type walker struct {
	ctx  context.Context
	turn chan struct{}

	began         time.Time     // of this turn
	took          time.Duration // in all turns
	dev           uint64
	linked        map[uint64]struct{}
	bytes, inodes uint64
	tooDeep       bool
}

// walk counts. A directory that is not there is an error; what vanishes below it meanwhile is none.
func (w *walker) walk(dir string) error {
	if err := w.take(); err != nil {
		return err
	}
	defer w.yield()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return fmt.Errorf("stat %s: %w", dir, err)
	}
	w.dev = uint64(st.Dev)
	w.add(&st)
	return w.below(os.NewFile(uintptr(fd), dir), 1)
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

// below counts what is in an open directory, and closes it.
func (w *walker) below(dir *os.File, depth int) error {
	defer dir.Close()
	for {
		if time.Since(w.began) > layerTurn {
			w.yield()
			if err := w.take(); err != nil {
				return err
			}
		}
		names, err := dir.Readdirnames(dirBatch)
		for _, name := range names {
			if err := w.one(dir, name, depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT): // ENOENT: it was removed
			return nil
		case err != nil:
			return err
		}
	}
}

func (w *walker) one(dir *os.File, name string, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stat %q in %q: %w", name, dir.Name(), err)
	}
	if uint64(st.Dev) != w.dev {
		return nil // something is mounted there, it takes nothing of the layer
	}
	w.add(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if depth == maxDepth {
		w.tooDeep = true
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // it is something else by now
		return nil
	case err != nil:
		return fmt.Errorf("open %q in %q: %w", name, dir.Name(), err)
	}
	return w.below(os.NewFile(uintptr(fd), name), depth+1)
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
