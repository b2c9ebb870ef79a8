// Package tree removes and walks over trees of files that others have made, and may still change: deeper than any path is long, with more names
// in a directory than memory holds, with files that are no files. Nothing below the root of a tree is looked up by a path: each name is, in a
// directory that is open, and no link is followed. What is mounted in a tree is left as it is. Nothing is opened but directories, so nothing
// blocks. Descriptors and memory are bounded at any depth and width.
//
// It knows no policy: what is removed, and when, is the caller's.
package tree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxOpen is how many directories within each other a removal has open. Those that lie deeper are moved up, and removed from there.
	maxOpen = 32
	// maxErrors is how many errors are told of a tree.
	maxErrors = 8
	// maxPasses is how often a tree is gone over that somebody else writes to all the time.
	maxPasses = 64
)

// Remove removes a file, or a directory with all that is in it, but nothing that is mounted there: a mount point is an error (EBUSY) and
// stays, with what is mounted. It goes on after an error and returns the first few. Nothing there is no error. The last name of the path is not followed if it is a
// link.
//
// A directory that lies deep is moved up within the tree before it is removed; one that cannot be removed stays where it was moved.
func Remove(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(parent)
	r := &remover{ctx: ctx, parent: parent, path: path, name: filepath.Base(path)}
	return r.remove()
}

// remover removes one tree.
type remover struct {
	ctx    context.Context
	parent int    // the directory that the tree is in
	path   string // of the tree, for errors
	name   string // of the tree, in parent

	patient time.Time // until when it waits for mounts elsewhere; zero: it has not begun to
	open    []level
	buffers [maxOpen][]byte
	marker  string // what the names of moved directories begin with
	count   int    // of moved directories

	// What happened in this pass.
	errs          []error
	left          int // further errors
	removed       bool
	moved         bool
	other         bool // somebody else changes the tree
	lastRemaining string
}

// level is a directory that is being emptied.
type level struct {
	listing
	name  string
	again bool // something was moved into it after it was read, perhaps
}

// remove goes over the tree until it is gone, or nothing of it can be removed any more.
func (r *remover) remove() error {
	err := r.unlink(r.parent, r.name, unix.DT_UNKNOWN)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return nil // nothing has a name like that
	}
	if !notEmpty(err) {
		return r.fault("remove", "", err)
	}
	for passes := 0; ; {
		r.errs, r.left, r.removed, r.moved, r.other = nil, 0, false, false, false
		if err := r.pass(); err != nil {
			return err
		}
		if err := r.unlink(r.parent, r.name, unix.DT_DIR); !notEmpty(err) {
			return r.fault("remove", "", err)
		}
		if !r.moved {
			passes++
		}
		if !r.removed && !r.moved && !r.other || passes == maxPasses {
			return r.told()
		}
	}
}

// told is what is said of a tree that stays.
func (r *remover) told() error {
	if len(r.errs) == 0 {
		return &os.PathError{Op: "remove", Path: filepath.Join(r.path, r.lastRemaining), Err: unix.ENOTEMPTY}
	}
	if r.left > 0 {
		r.errs = append(r.errs, fmt.Errorf("%d more files of %s were not removed", r.left, r.path))
	}
	return errors.Join(r.errs...)
}

// pass goes over the tree once. Only what keeps it from going on is an error.
func (r *remover) pass() error {
	defer func() {
		for _, l := range r.open {
			unix.Close(l.fd)
		}
		r.open = r.open[:0]
	}()
	if err := r.enter(r.parent, r.name); err != nil {
		return r.fault("open", "", err)
	}
	for len(r.open) > 0 {
		top := &r.open[len(r.open)-1]
		e, err := top.read(r.ctx.Err)
		switch {
		case err == nil:
			r.one(top.fd, e)
			continue
		case r.ctx.Err() != nil:
			return r.ctx.Err()
		case !errors.Is(err, io.EOF):
			r.note("read", "", err)
		case top.again:
			top.again = false
			if err := top.seek(0); err == nil {
				continue
			}
		}
		r.leave()
	}
	return nil
}

// enter opens a directory, whose names are the next to be removed.
func (r *remover) enter(dir int, name string) error {
	fd, err := openDir(dir, name)
	if err != nil {
		return err
	}
	at := len(r.open)
	if r.buffers[at] == nil {
		r.buffers[at] = make([]byte, batch)
	}
	r.open = append(r.open, level{listing: listing{fd: fd, buf: r.buffers[at]}, name: name})
	return nil
}

// leave removes the directory that was emptied. The tree's own is left to remove.
func (r *remover) leave() {
	last := len(r.open) - 1
	emptied := r.open[last]
	unix.Close(emptied.fd)
	r.open = r.open[:last]
	if last == 0 {
		return
	}
	switch err := r.unlink(r.open[last-1].fd, emptied.name, unix.DT_DIR); {
	case err == nil:
		r.removed = true
	case notEmpty(err): // something in it could not be removed, or somebody writes there
		r.lastRemaining = r.at(emptied.name)
	default:
		r.note("remove", emptied.name, err)
	}
}

// one removes a name of the topmost open directory, or enters it.
func (r *remover) one(dir int, e entry) {
	err := r.unlink(dir, e.name, e.kind)
	if err == nil {
		r.removed = true
		return
	}
	if !notEmpty(err) {
		r.note("remove", e.name, err)
		return
	}
	if len(r.open) < maxOpen {
		switch err := r.enter(dir, e.name); {
		case err == nil:
			return
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // it is something else by now
			r.other = true
			return
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE): // then it is moved, which takes no descriptor
		default:
			r.note("open", e.name, err)
			return
		}
	}
	r.lift(dir, e.name)
}

// lift moves a directory up: to the root of the tree, or as far as the file system lets it (project quotas and encryption keep directories where they are).
func (r *remover) lift(dir int, name string) {
	if r.marker == "" {
		r.marker = ".gone-" + rand.Text()[:8] + "-"
	}
	err := error(unix.EMFILE) // there is nothing above it to be moved to
	for at := range len(r.open) - 1 {
		r.count++
		// Should something have the name: it is to be removed as well.
		err = retried(func() error { return unix.Renameat(dir, name, r.open[at].fd, fmt.Sprint(r.marker, r.count)) })
		switch {
		case err == nil:
			r.open[at].again, r.moved = true, true
			return
		case errors.Is(err, unix.ENOENT):
			r.other = true
			return
		}
	}
	r.note("move up", name, err)
}

// unlink removes one file or empty directory. One that is gone is no error.
func (r *remover) unlink(dir int, name string, kind uint8) error {
	flags := []int{0, unix.AT_REMOVEDIR}
	if kind == unix.DT_DIR {
		flags = []int{unix.AT_REMOVEDIR, 0}
	}
	try := func() error {
		first := retried(func() error { return unix.Unlinkat(dir, name, flags[0]) })
		if !errors.Is(first, unix.EISDIR) && !errors.Is(first, unix.EPERM) && !errors.Is(first, unix.ENOTDIR) {
			return first
		}
		// The kernel refuses to remove a mount point before it looks whether the directory is empty.
		second := retried(func() error { return unix.Unlinkat(dir, name, flags[1]) })
		if errors.Is(first, unix.EPERM) && (errors.Is(second, unix.ENOTDIR) || errors.Is(second, unix.EISDIR)) {
			return first // it may not be removed, such as what is immutable
		}
		return second
	}
	err := try()
	if errors.Is(err, unix.EBUSY) {
		if r.patient.IsZero() {
			r.patient = time.Now().Add(elsewherePatience)
		}
		err = removeFree(dir, name, r.patient, try)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func notEmpty(err error) bool { return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) }

// at is where a name of the topmost open directory is in the tree.
func (r *remover) at(name string) string {
	var path string
	for _, l := range r.open[min(1, len(r.open)):] {
		path = filepath.Join(path, l.name)
	}
	return filepath.Join(path, name)
}

func (r *remover) note(op, name string, err error) {
	if len(r.errs) == maxErrors {
		r.left++
		return
	}
	r.errs = append(r.errs, r.fault(op, r.at(name), err))
}

// fault says what is wrong with a file of the tree.
func (r *remover) fault(op, name string, err error) error {
	path := filepath.Join(r.path, name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s is mounted, it is not removed: %w", path, err)
	case errors.Is(err, unix.EXDEV) && op == "open":
		return fmt.Errorf("%s is mounted, it is not removed: %w", path, unix.EBUSY)
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}
