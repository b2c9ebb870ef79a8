// Package crilog writes a container's log in the format that CRI defines: one line of output is
//
//	<RFC3339Nano time> <stdout|stderr> <F|P> <content>\n
//
// A line longer than MaxContent is cut into parts, all tagged P but the last, which is F. What is left without a newline
// at the end of the output is written as P: it is a part of a line whose end never came, and a reader that puts lines together again
// (a kubelet for the termination message) gets what was written, to the byte. containerd's redirectLogs and CRI-O's conmon do the same.
//
// All that one Write brings goes to the file in one write(2), so that a kill finds whole lines in it, or (a write can be
// cut at a page) one torn line at its end, which OpenAgain removes. Nothing is buffered but the unfinished line, at most
// MaxContent bytes a stream.
//
// With a Rotation the file never grows beyond its limit: see rotate.go. How a path is trusted that containers may write to, folder.go says.
package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// MaxContent bounds the content of one line of the log, in bytes.
const MaxContent = 16 << 10

// fileMode lets the group read, as the kubelet's own log directories do.
const fileMode = 0o640

// File is one log file, shared by the streams of a container. Methods are safe for concurrent use.
type File struct {
	path     string
	rotation Rotation
	now      func() time.Time

	mu    sync.Mutex
	f     *os.File // nil: there is none, until a Reopen
	dir   *os.File // the folder that f is in, when f is there
	base  string   // the name of f in it
	size  int64    // of the file, as far as this writer knows
	fixed bool     // a Reopen has failed: nobody but another one may make a new file
	buf   []byte   // what the present write formats; from buffers
	stamp []byte   // the time of the present write, formatted
}

// errNoFile says that a log has no file: it could not be opened again, and no Reopen has made one since.
var errNoFile = errors.New("the log has no file; it waits to be reopened")

// Open opens the log, and makes it when there is none. Its directory must exist. What is no regular file, and what lies behind a symbolic
// link where none may be, is errdefs.ErrFailedPrecondition.
func Open(path string, r Rotation) (*File, error) {
	l := &File{path: path, rotation: r, now: time.Now}
	if err := l.open(true); err != nil {
		return nil, fmt.Errorf("container log: %w", err)
	}
	return l, nil
}

// OpenAgain is Open for a log whose writer was killed: a torn last line is removed, and so is what a rotation cut short
// has left. With fixed a Reopen has failed, so that no new file may be made.
//
// With the error comes a log without a file. What is written to it is lost, until a Reopen succeeds.
func OpenAgain(path string, r Rotation, fixed bool) (*File, error) {
	l := &File{path: path, rotation: r, now: time.Now, fixed: fixed}
	if err := l.open(!fixed); err != nil {
		return l, fmt.Errorf("container log: %w", err)
	}
	if err := removeTornLine(l.f); err != nil {
		l.drop()
		return l, fmt.Errorf("container log %s: remove its torn last line: %w", path, err)
	}
	l.measure()
	if r.MaxBytes > 0 {
		l.removeEmpty()
	}
	return l, nil
}

// open opens the file at the path, and its folder, in the place of those that are open, and takes its size.
func (l *File) open(create bool) error {
	dir, base, err := openFolder(l.path)
	if err != nil {
		return err
	}
	f, err := openIn(dir, base, create)
	if err != nil {
		dir.Close()
		return err
	}
	l.drop()
	l.f, l.dir, l.base = f, dir, base
	l.measure()
	return nil
}

// drop closes what is open. Nothing was buffered: there is nothing to fail.
func (l *File) drop() {
	if l.f != nil {
		l.f.Close()
		l.dir.Close()
	}
	l.f, l.dir = nil, nil
}

// measure asks for the file's size.
func (l *File) measure() {
	l.size = 0
	if st, err := l.f.Stat(); err == nil {
		l.size = st.Size()
	}
}

// removeTornLine truncates the file after its last newline.
func removeTornLine(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return nil
	}
	// A torn line is no longer than a whole one: content, time, stream and tag.
	tail := make([]byte, min(st.Size(), MaxContent+128))
	if _, err := f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil && err != io.EOF {
		return err
	}
	last := bytes.LastIndexByte(tail, '\n')
	if last == len(tail)-1 || last < 0 && int64(len(tail)) < st.Size() {
		return nil // whole; or not a file of ours
	}
	return f.Truncate(st.Size() - int64(len(tail)) + int64(last) + 1)
}

// Reopen goes on in a new file at the same path, which the caller has moved away. When it fails, the old file stays
// in use, and no new one is made, not by a rotation either, until another Reopen succeeds.
func (l *File) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(true); err != nil {
		l.fixed = true
		return fmt.Errorf("reopen container log: %w", err)
	}
	l.fixed = false
	return nil
}

// Fix forbids new files, as a Reopen that failed does.
func (l *File) Fix() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fixed = true
}

// Close closes the file. What the streams have not finished is lost: end them with Stream.Close first.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	return errors.Join(l.f.Close(), l.dir.Close())
}

// Stream is one stream's way into the log. It is for one goroutine.
type Stream struct {
	log  *File
	name string
	rest []byte // the unfinished line, at most MaxContent bytes
}

// Stream returns the way into the log for a stream of that name.
func (l *File) Stream(name string) *Stream { return &Stream{log: l, name: name} }

// Write takes output. It returns when the lines in it are in the file. On an error (a full disk) they are lost, whole
// lines of them, and the file stays well formed.
func (s *Stream) Write(p []byte) (int, error) {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.begin()()
	n := len(p)
	var errs []error
	add := func(tag byte, content []byte) {
		if err := l.add(s.name, tag, s.rest, content); err != nil {
			errs = append(errs, err)
		}
		s.rest = s.rest[:0]
	}
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		room := MaxContent - len(s.rest)
		switch {
		case end >= 0 && end <= room:
			add('F', p[:end])
			p = p[end+1:]
		case end < 0 && len(p) <= room:
			s.rest = append(s.rest, p...)
			p = nil
		default: // a line that is too long
			add('P', p[:room])
			p = p[room:]
		}
	}
	if len(s.rest) == 0 {
		s.rest = nil // an idle stream costs nothing
	}
	return n, errors.Join(append(errs, l.write(l.buf))...)
}

// Close writes the unfinished line, as a part of one.
func (s *Stream) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.begin()()
	err := l.add(s.name, 'P', s.rest, nil)
	s.rest = nil
	return errors.Join(err, l.write(l.buf))
}

// buffers are for what a write formats, so that a burst costs no memory and an idle log has none.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// begin makes l ready for the lines of one write, which all have one time. What it returns ends that.
func (l *File) begin() (end func()) {
	b := buffers.Get().(*[]byte)
	l.buf = (*b)[:0]
	l.stamp = l.now().UTC().AppendFormat(l.stamp[:0], time.RFC3339Nano)
	return func() {
		*b, l.buf = l.buf, nil
		buffers.Put(b)
	}
}

// add formats a line. Where it would make the file too large, what came before is written, and the file rotated.
func (l *File) add(stream string, tag byte, content, more []byte) (err error) {
	begin := len(l.buf)
	l.buf = append(l.buf, l.stamp...)
	l.buf = append(l.buf, ' ')
	l.buf = append(l.buf, stream...)
	l.buf = append(l.buf, ' ', tag, ' ')
	l.buf = append(l.buf, content...)
	l.buf = append(l.buf, more...)
	l.buf = append(l.buf, '\n')
	if l.rotation.MaxBytes > 0 && l.size+int64(len(l.buf)) > l.rotation.MaxBytes && l.size+int64(begin) > 0 {
		err = l.write(l.buf[:begin])
		l.buf = append(l.buf[:0], l.buf[begin:]...)
		l.rotate(int64(len(l.buf)))
	}
	return err
}

// write appends whole lines to the file, or nothing.
func (l *File) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if l.f == nil {
		return errNoFile
	}
	n, err := l.f.Write(p)
	if err == nil {
		l.size += int64(n)
		return nil
	}
	if n > 0 {
		// Take the torn part back. The size is asked for rather than remembered: others may have truncated the file.
		if st, serr := l.f.Stat(); serr == nil {
			_ = l.f.Truncate(max(st.Size()-int64(n), 0))
		}
	}
	l.measure()
	return err
}
