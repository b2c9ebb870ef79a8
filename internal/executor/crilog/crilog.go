// Package crilog writes a container's log in the format that CRI defines: one line of output is
//
//	<RFC3339Nano time> <stdout|stderr> <F|P> <content>\n
//
// A line longer than MaxContent is cut into parts, all tagged P but the last, which is F. What is left without a newline
// at the end of the output is written as F, as other CRI runtimes do.
//
// All that one Write brings goes to the file in one write(2), so that a kill finds whole lines in it, or (a write can be
// cut at a page) one torn line at its end, which OpenAgain removes. Nothing is buffered but the unfinished line, at most
// MaxContent bytes a stream.
package crilog

import (
	"bytes"
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
	path string
	now  func() time.Time

	mu  sync.Mutex
	f   *os.File
	buf []byte // reused; what the present write formats
}

// Open opens the log, and makes it when there is none. Its directory must exist.
func Open(path string) (*File, error) {
	f, err := openAppend(path)
	if err != nil {
		return nil, fmt.Errorf("container log: %w", err)
	}
	return &File{path: path, f: f, now: time.Now}, nil
}

// OpenAgain is Open for a log whose writer was killed: a torn last line is removed.
func OpenAgain(path string) (*File, error) {
	l, err := Open(path)
	if err != nil {
		return nil, err
	}
	if err := removeTornLine(l.f); err != nil {
		l.Close()
		return nil, fmt.Errorf("container log %s: remove its torn last line: %w", path, err)
	}
	return l, nil
}

func openAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, fileMode)
}

// removeTornLine truncates the file after its last newline.
func removeTornLine(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() == 0 {
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
// in use and no new one is made.
func (l *File) Reopen() error {
	f, err := openAppend(l.path)
	if err != nil {
		return fmt.Errorf("reopen container log: %w", err)
	}
	l.mu.Lock()
	old := l.f
	l.f = f
	l.mu.Unlock()
	return old.Close()
}

// Close closes the file. What the streams have not finished is lost: end them with Stream.Close first.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
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
	l.buf = l.buf[:0]
	stamp := l.now()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		room := MaxContent - len(s.rest)
		switch {
		case end >= 0 && end <= room:
			l.add(stamp, s.name, 'F', s.rest, p[:end])
			s.rest, p = s.rest[:0], p[end+1:]
		case end < 0 && len(p) <= room:
			s.rest = append(s.rest, p...)
			p = nil
		default: // a line that is too long
			l.add(stamp, s.name, 'P', s.rest, p[:room])
			s.rest, p = s.rest[:0], p[room:]
		}
	}
	if len(s.rest) == 0 {
		s.rest = nil // an idle stream costs nothing
	}
	return n, l.flush()
}

// Close writes the unfinished line.
func (s *Stream) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = l.buf[:0]
	l.add(l.now(), s.name, 'F', s.rest, nil)
	s.rest = nil
	return l.flush()
}

func (l *File) add(stamp time.Time, stream string, tag byte, content, more []byte) {
	l.buf = stamp.UTC().AppendFormat(l.buf, time.RFC3339Nano)
	l.buf = append(l.buf, ' ')
	l.buf = append(l.buf, stream...)
	l.buf = append(l.buf, ' ', tag, ' ')
	l.buf = append(l.buf, content...)
	l.buf = append(l.buf, more...)
	l.buf = append(l.buf, '\n')
}

// keepBuffer is the largest buffer that is kept from one write to the next.
const keepBuffer = 4 << 10

func (l *File) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	n, err := l.f.Write(l.buf)
	if err != nil && n > 0 {
		// Take the torn part back. The size is asked for rather than remembered: others may have truncated the file.
		if st, serr := l.f.Stat(); serr == nil && st.Mode().IsRegular() {
			l.f.Truncate(max(st.Size()-int64(n), 0))
		}
	}
	if cap(l.buf) > keepBuffer {
		l.buf = nil
	}
	return err
}
