package podlog

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
)

// Options choose what is read. The zero value is everything that is there.
type Options struct {
	// Tail is how many lines at the end are read; nil: all.
	Tail *int64
	// Since leaves out the lines before this time; zero: none.
	Since time.Time
	// Timestamps puts each line's time before it.
	Timestamps bool
	// Limit is how many bytes are written at most; nil: no limit.
	Limit *int64
	// Stream is stdout or stderr, to read only that; empty: both.
	Stream string
	// Follow goes on with what is written later, across rotations of the file, until the container has ended and all is
	// read.
	Follow bool
	// Ended is closed when the container has ended. It is only looked at with Follow.
	Ended <-chan struct{}
	// Changes tell of changes with Follow; nil: by an inotify instance for this log alone.
	Changes *Changes
	// From is where reading begins, instead of the file's start; it is an error when another file is at the path by now.
	From *Position
	// End is set to where reading has ended, when that is the log's end.
	End *Position
}

// Position is a place in a log's file.
type Position struct {
	file   os.FileInfo
	offset int64
}

// seek goes to where reading begins.
func (o *Options) seek(f *os.File) (offset int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	switch {
	case o.From != nil && !os.SameFile(o.From.file, info):
		return 0, fmt.Errorf("log %s was rotated since it was read: %w", f.Name(), errdefs.ErrFailedPrecondition)
	case o.From != nil:
		offset = o.From.offset
	case o.Tail != nil:
		if offset, err = tailOffset(f, info.Size(), *o.Tail); err != nil {
			return 0, err
		}
	}
	_, err = f.Seek(offset, io.SeekStart)
	return offset, err
}

// ended notes that all of a file was read.
func (o *Options) ended(f *os.File, offset int64) error {
	if o.End == nil {
		return nil
	}
	info, err := f.Stat()
	*o.End = Position{file: info, offset: offset}
	return err
}

// maxLine is the longest record that is held in memory; a longer one is passed on in pieces.
const maxLine = 1 << 20

// Read writes the log at path to w. It returns nil at the log's end, at the limit, and when following has come to the
// container's end; and ctx's error when ctx ends first.
func Read(ctx context.Context, path string, opts Options, w io.Writer) error {
	out := &printer{w: w, opts: opts, left: -1}
	if opts.Limit != nil {
		out.left = *opts.Limit
	}
	// The watch begins before the first look, so that nothing that comes in between is missed.
	var changed *listener
	if opts.Follow {
		changes := cmp.Or(opts.Changes, new(Changes))
		var err error
		if changed, err = changes.follow(path); err != nil {
			return err
		}
		defer changes.leave(changed)
	}
	f, err := open(path)
	if err != nil {
		return fmt.Errorf("log %s: %w", path, err)
	}
	defer func() { f.Close() }()
	offset, err := opts.seek(f)
	if err != nil {
		return err
	}
	r := &lines{r: bufio.NewReaderSize(f, block), offset: offset}
	for {
		// Whether the container has ended is asked before the file is read to its end, not after.
		ended := !opts.Follow || isClosed(opts.Ended)
		if err := r.drain(ctx, ended, out.print); err != nil {
			if errors.Is(err, errFull) {
				return nil
			}
			return err
		}
		next, err := reopened(f, path, ended)
		if err != nil {
			return err
		}
		switch {
		case next != nil && opts.Follow:
			// What the writer still put into the old file before it changed over was read above, or is read now.
			if err := r.drain(ctx, true, out.print); err != nil {
				next.Close()
				if errors.Is(err, errFull) {
					return nil
				}
				return err
			}
			f.Close()
			f = next
			r = &lines{r: bufio.NewReaderSize(f, block)}
			continue
		case next != nil:
			next.Close()
		}
		if ended {
			return errors.Join(opts.ended(f, r.offset), out.flush())
		}
		if err := out.flush(); err != nil {
			return err
		}
		if err := changed.wait(ctx, opts.Ended); err != nil {
			return err
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reopened opens the file that is at path now when that is not f any more; nil: it is, or there is none. An empty one counts only when the container has
// ended: a runtime that is told to reopen a log makes the new file first, and may still write to the old one.
func reopened(f *os.File, path string, ended bool) (*os.File, error) {
	here, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	have, err := f.Stat()
	if err != nil || os.SameFile(here, have) || here.Size() == 0 && !ended {
		return nil, err
	}
	next, err := open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return next, err
}

// lines reads whole lines from a file that grows.
type lines struct {
	r *bufio.Reader
	// begun is the start of a line whose end is not written yet.
	begun []byte
	// offset is how far the file was passed on.
	offset int64
}

// drain passes on all lines that are there. A line without an end is kept for later, unless this is the last time.
func (l *lines) drain(ctx context.Context, last bool, pass func([]byte) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk, err := l.r.ReadSlice('\n')
		l.begun = append(l.begun, chunk...)
		whole := err == nil || len(l.begun) >= maxLine || last && errors.Is(err, io.EOF) && len(l.begun) > 0
		if whole {
			if perr := pass(l.begun); perr != nil {
				return perr
			}
			l.offset += int64(len(l.begun))
			l.begun = l.begun[:0]
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
