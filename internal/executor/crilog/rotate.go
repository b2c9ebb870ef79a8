package crilog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
		err = l.removeOldest(old)
	}
	if err != nil && l.rotation.Failed != nil {
		l.rotation.Failed(fmt.Errorf("rotate container log %s: %w", l.path, err))
	}
}

// startNew moves the file away, and goes on in a new one. It returns the names of all that were ever moved away. What somebody has put
// in the file's place is moved away in its stead, unopened.
func (l *File) startNew() (old []string, err error) {
	if old, err = rotated(l.dir, l.base); err != nil {
		return nil, err
	}
	name := l.base + "." + nextStamp(l.now(), old)
	next, err := createIn(l.dir, name)
	if err != nil {
		return nil, err
	}
	err = renameIn(l.dir, name, l.base, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		old = append(old, name)
	case errors.Is(err, fs.ErrNotExist): // somebody has moved the file away already
		err = renameIn(l.dir, name, l.base, 0)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		if next, err = l.exchangeInSteps(name, next); err == nil {
			old = append(old, name)
		}
	}
	if err != nil {
		l.removeSame(name, next)
		next.Close()
		return nil, err
	}
	l.f.Close()
	l.f = next
	l.measure()
	return old, nil
}

// removeSame removes a file if it is the one that is open, and not another one that has got its name.
func (l *File) removeSame(name string, f *os.File) {
	var there, ours unix.Stat_t
	err := unix.Fstatat(int(l.dir.Fd()), name, &there, unix.AT_SYMLINK_NOFOLLOW)
	if ferr := unix.Fstat(int(f.Fd()), &ours); err == nil && ferr == nil && there.Dev == ours.Dev && there.Ino == ours.Ino {
		_ = removeIn(l.dir, name) // if it cannot be removed it counts as one of the files, and goes when its turn comes
	}
}

// exchangeInSteps is for file systems that cannot exchange two files. For a moment the path has none; should the writer be
// killed then, OpenAgain makes it.
func (l *File) exchangeInSteps(name string, next *os.File) (*os.File, error) {
	if err := renameIn(l.dir, l.base, name, 0); err != nil {
		return next, err
	}
	f, err := openIn(l.dir, l.base, true)
	if err != nil {
		_ = renameIn(l.dir, name, l.base, 0) // where that fails too, the log goes on under its new name
		return next, err
	}
	next.Close() // what it was has been replaced
	return f, nil
}

// removeOldest removes what is more than the limit of files, the present one counted too.
func (l *File) removeOldest(old []string) error {
	var errs []error
	for len(old) > max(l.rotation.MaxFiles-1, 1) {
		errs = append(errs, removeIn(l.dir, old[0]))
		old = old[1:]
	}
	return errors.Join(errs...)
}

// removeEmpty removes a file that a rotation made and did not come to use.
func (l *File) removeEmpty() {
	old, err := rotated(l.dir, l.base)
	if err != nil || len(old) == 0 {
		return
	}
	newest := old[len(old)-1]
	var st unix.Stat_t
	if err := unix.Fstatat(int(l.dir.Fd()), newest, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 {
		_ = removeIn(l.dir, newest) // if it cannot be removed it counts as one of the files, and goes when its turn comes
	}
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
