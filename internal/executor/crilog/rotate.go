package crilog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Rotation limits a log. The zero value does not: then somebody else rotates, and calls Reopen.
//
// Before the line that would make the file larger than MaxBytes, the file becomes PATH.YYYYMMDD-HHMMSS, as the kubelet
// names them too, and the log goes on in a new one. Names only ever grow: where several rotations fall into one second
// they run ahead of the clock. A line is never split, so a line that is itself too large gets a file of its own.
//
// The path is never without a file, and a writer killed at any point leaves all lines in order: the new file is made under
// the old one's new name, and then both change places in one step.
type Rotation struct {
	MaxBytes int64
	// MaxFiles is how many files are kept, the present one included; at least 2.
	MaxFiles int
	// Failed is told when a rotation does not succeed. The log goes on in the present file, beyond its limit, and it is tried
	// again when that has grown by an eighth. nil: nobody is told.
	Failed func(error)
}

// stampLayout is the suffix of a file that was rotated away. It is local time, as the kubelet's is.
const stampLayout = "20060102-150405"

// rotate begins a new file for a line of the given size. Where it fails, the line goes into the present file.
func (l *File) rotate(line int64) {
	if l.fixed || l.f == nil {
		return
	}
	// Somebody may have truncated the file: then there is room.
	if l.measure(); l.size+line <= l.rotation.MaxBytes || l.size == 0 {
		return
	}
	old, err := l.startNew()
	if err != nil {
		l.size -= l.rotation.MaxBytes / 8
	} else {
		err = removeOldest(old, l.rotation.MaxFiles)
	}
	if err != nil && l.rotation.Failed != nil {
		l.rotation.Failed(fmt.Errorf("rotate container log %s: %w", l.path, err))
	}
}

// startNew moves the file away, and goes on in a new one. It returns all that were ever moved away.
func (l *File) startNew() (old []string, err error) {
	if old, err = rotated(l.path); err != nil {
		return nil, err
	}
	name := l.path + "." + nextStamp(l.now(), old)
	next, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, fileMode)
	if err != nil {
		return nil, err
	}
	err = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, l.path, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		old = append(old, name)
	case errors.Is(err, fs.ErrNotExist): // somebody has moved the file away already
		err = os.Rename(name, l.path)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		if next, err = l.exchangeInSteps(name, next); err == nil {
			old = append(old, name)
		}
	}
	if err != nil {
		removeSame(name, next)
		next.Close()
		return nil, err
	}
	l.f.Close()
	l.f = next
	l.measure()
	return old, nil
}

// removeSame removes a file if it is the one that is open, and not another one that has got its name.
func removeSame(name string, f *os.File) {
	there, err := os.Lstat(name)
	ours, ferr := f.Stat()
	if err == nil && ferr == nil && os.SameFile(there, ours) {
		os.Remove(name)
	}
}

// exchangeInSteps is for file systems that cannot exchange two files. For a moment the path has none; should the writer be
// killed then, OpenAgain makes it.
func (l *File) exchangeInSteps(name string, next *os.File) (*os.File, error) {
	if err := os.Rename(l.path, name); err != nil {
		return next, err
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, fileMode)
	if err != nil {
		os.Rename(name, l.path) // where that fails too, the log goes on under its new name
		return next, err
	}
	next.Close() // what it was has been replaced
	return f, nil
}

// removeOldest removes what is more than max files, the present one counted too.
func removeOldest(old []string, limit int) error {
	var errs []error
	for len(old) > max(limit-1, 1) {
		if err := os.Remove(old[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		old = old[1:]
	}
	return errors.Join(errs...)
}

// removeEmpty removes a file that a rotation made and did not come to use.
func (l *File) removeEmpty() {
	old, err := rotated(l.path)
	if err != nil || len(old) == 0 {
		return
	}
	newest := old[len(old)-1]
	if st, err := os.Lstat(newest); err == nil && st.Size() == 0 {
		os.Remove(newest) // if it cannot be removed it counts as one of the files, and goes when its turn comes
	}
}

// rotated returns the files that were rotated away, the oldest first, those included that a kubelet has compressed.
func rotated(path string) (old []string, err error) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if stamp, ok := strings.CutPrefix(e.Name(), base+"."); ok && isStamp(strings.TrimSuffix(stamp, ".gz")) {
			old = append(old, dir+e.Name())
		}
	}
	slices.Sort(old)
	return old, nil
}

func isStamp(s string) bool {
	_, err := time.Parse(stampLayout, s)
	return err == nil && len(s) == len(stampLayout)
}

// nextStamp is the time now, or where names have come as far already, the next second after the newest one.
func nextStamp(now time.Time, old []string) string {
	stamp := now.Local().Format(stampLayout)
	if len(old) == 0 {
		return stamp
	}
	newest := strings.TrimSuffix(old[len(old)-1], ".gz")
	newest = newest[len(newest)-len(stampLayout):]
	if stamp > newest {
		return stamp
	}
	last, err := time.Parse(stampLayout, newest)
	if err != nil {
		return stamp
	}
	return last.Add(time.Second).Format(stampLayout)
}
