package tree

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// keptOpen is how many directories within each other a walk has open. Of those that lie deeper only the present one is.
	keptOpen = 64
	// maxLevels bounds how many levels a walk remembers, 24 bytes for each. Directories alone that are so many take gigabytes.
	maxLevels = 1 << 20
)

// ErrUnfinished says that not all of a tree was walked over: somebody has moved directories of it while the walk was deep in them, or it has more than
// a million levels.
var ErrUnfinished = errors.New("not all of it was walked over")

// Visitor looks at the files of a tree.
type Visitor interface {
	// Pause is called before each batch of names. Its error ends the walk.
	Pause() error
	// Visit is called with each file and directory but the root, with its depth: 1 is what is in the root. Of a directory it tells whether to go into it.
	Visit(name string, depth int, st *unix.Stat_t) (enter bool)
}

// Actor is a Visitor that does something to the files.
type Actor interface {
	Visitor
	// Act is called with each file and directory but the root, before Visit is: by the open directory that it is in and its name there, which may be another
	// file's than st was read of by now. Its error ends the walk.
	Act(dir int, name string, st *unix.Stat_t) error
}

// Walk visits all that is below an open directory, which stays open, on its file system: neither what is mounted there nor what is in that. What vanishes meanwhile
// is no error.
func Walk(root int, v Visitor) error {
	w := &walk{visitor: v, shared: make([]byte, batch)}
	defer func() {
		for i := range w.levels {
			w.close(i)
		}
	}()
	fd, err := openDir(root, ".")
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := w.enter(fd); err != nil {
		return err
	}
	w.device = w.levels[0].device
	return w.run()
}

type walk struct {
	visitor    Visitor
	levels     []passed
	open       []listing // of the levels above keptOpen
	deep       listing   // of the present one below
	shared     []byte    // what deep reads to
	device     uint64
	unfinished bool
}

// passed is a directory that the walk is in.
type passed struct {
	device, inode uint64
	next          int64 // where reading goes on
}

// present is the listing of the directory that the walk is in.
func (w *walk) present() *listing {
	if last := len(w.levels) - 1; last < keptOpen {
		return &w.open[last]
	}
	return &w.deep
}

// enter takes an open directory as the next level.
func (w *walk) enter(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	switch at := len(w.levels); {
	case at < keptOpen:
		if len(w.open) == at {
			w.open = append(w.open, listing{buf: make([]byte, batch)})
		}
		w.open[at] = listing{fd: fd, buf: w.open[at].buf}
	default:
		if at > keptOpen {
			unix.Close(w.deep.fd)
		}
		w.deep = listing{fd: fd, buf: w.shared}
	}
	w.levels = append(w.levels, passed{device: uint64(st.Dev), inode: st.Ino})
	return nil
}

// close closes what a level has open.
func (w *walk) close(at int) {
	switch {
	case at < keptOpen:
		unix.Close(w.open[at].fd)
	case at == len(w.levels)-1:
		unix.Close(w.deep.fd)
	}
}

// leave goes back to the directory above.
func (w *walk) leave() {
	last := len(w.levels) - 1
	if last <= keptOpen { // the one above is open
		w.close(last)
		w.levels = w.levels[:last]
		return
	}
	above := w.levels[last-1]
	fd, err := openParent(w.deep.fd)
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && (uint64(st.Dev) != above.device || st.Ino != above.inode) {
			err = ErrUnfinished
		}
		if err == nil {
			_, err = unix.Seek(fd, above.next, unix.SEEK_SET)
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil { // it was moved elsewhere; the lowest directory that is open all the time is above them all
		w.unfinished = true
		unix.Close(w.deep.fd)
		w.levels = w.levels[:keptOpen]
		return
	}
	unix.Close(w.deep.fd)
	w.deep = listing{fd: fd, buf: w.shared}
	w.levels = w.levels[:last]
}

func openParent(dir int) (int, error) {
	for {
		fd, err := unix.Openat2(dir, "..", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

func (w *walk) run() error {
	for len(w.levels) > 0 {
		l := w.present()
		e, err := l.read(w.visitor.Pause)
		switch {
		case errors.Is(err, io.EOF):
			w.leave()
			continue
		case err != nil:
			return err
		}
		if err := w.one(l, e); err != nil {
			return err
		}
	}
	if w.unfinished {
		return ErrUnfinished
	}
	return nil
}

// one visits a name, and enters it if it is a directory.
func (w *walk) one(l *listing, e entry) error {
	var st unix.Stat_t
	err := retried(func() error { return unix.Fstatat(l.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) })
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("stat %q: %w", e.name, err)
	case uint64(st.Dev) != w.device: // something is mounted there
		return nil
	}
	if actor, acts := w.visitor.(Actor); acts {
		if err := actor.Act(l.fd, e.name, &st); err != nil {
			return err
		}
	}
	if !w.visitor.Visit(e.name, len(w.levels), &st) || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if len(w.levels) == maxLevels {
		w.unfinished = true
		return nil
	}
	fd, err := openDir(l.fd, e.name)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV): // it is something else by now
		return nil
	case err != nil:
		return fmt.Errorf("open %q: %w", e.name, err)
	}
	w.levels[len(w.levels)-1].next = e.next
	return w.enter(fd)
}
