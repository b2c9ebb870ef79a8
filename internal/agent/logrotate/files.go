package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// folder opens the folder of a log, below the directory of all logs, and returns the log's name in it. No link is followed below that directory.
func folder(dir, log string) (root *os.Root, base string, err error) {
	rel, err := filepath.Rel(dir, log)
	if err != nil || !filepath.IsLocal(rel) {
		// The runtime may have resolved the path; the directory itself may be a link of the administrator's.
		real, rerr := filepath.EvalSymlinks(dir)
		if rerr != nil {
			return nil, "", rerr
		}
		if rel, err = filepath.Rel(real, log); err != nil || !filepath.IsLocal(rel) {
			return nil, "", fmt.Errorf("it is not below %s: %w", dir, errdefs.ErrFailedPrecondition)
		}
	}
	if root, err = os.OpenRoot(dir); err != nil {
		return nil, "", err
	}
	parent, base := filepath.Split(rel)
	for _, name := range strings.FieldsFunc(parent, func(r rune) bool { return r == filepath.Separator }) {
		next, err := enter(root, name)
		root.Close()
		if err != nil {
			return nil, "", err
		}
		root = next
	}
	return root, base, nil
}

// enter opens a directory in another one, unless it is a link.
func enter(root *os.Root, name string) (*os.Root, error) {
	seen, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	next, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if there, err := next.Stat("."); err != nil || !os.SameFile(seen, there) {
		next.Close()
		return nil, errors.Join(fmt.Errorf("%s is no directory: %w", name, errdefs.ErrFailedPrecondition), err)
	}
	return next, nil
}

// names lists a folder.
func names(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// openFile opens a file to read it, if it is a regular one: to open a FIFO waits, to open a device acts.
func openFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	seen, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !seen.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is no regular file: %w", name, errdefs.ErrFailedPrecondition)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if there, err := f.Stat(); err != nil || !os.SameFile(seen, there) {
		f.Close()
		return nil, nil, errors.Join(fmt.Errorf("%s was replaced while it was opened: %w", name, errdefs.ErrUnavailable), err)
	}
	return f, seen, nil
}

// compress makes a compressed file of a file, and removes that.
func compress(ctx context.Context, root *os.Root, name string) (err error) {
	from, info, err := openFile(root, name)
	if err != nil {
		return err
	}
	defer from.Close()
	tmp := name + compressed + unfinished
	to, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(tmp) // else the next rotation does
		}
	}()
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, reader{ctx, from})
	if err := errors.Join(err, z.Close(), to.Close()); err != nil {
		return err
	}
	if err := root.Rename(tmp, name+compressed); err != nil {
		return err
	}
	return root.Remove(name)
}

// reader reads until ctx has ended.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// putBack gives a file that was moved away its name back, unless there is another one of that name.
func putBack(root *os.Root, name, base string) error {
	if err := root.Link(name, base); err != nil {
		return err
	}
	return root.Remove(name)
}
