package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// fileReader reads control files into one buffer, without the runtime's poller: a node reads some thousands of them at a time.
// The first error stays; a file that is not there is none, but noted.
type fileReader struct {
	buf     []byte
	missing bool // a file was not there
	err     error

	dir string // the directory that is open, if any: several files are found faster in it than by their paths
	fd  int
}

var readers = sync.Pool{New: func() any { return &fileReader{buf: make([]byte, 16<<10)} }}

// maxControlFile bounds a control file in bytes. The longest is a list of devices.
const maxControlFile = 16 << 20

// reset makes the reader ready for another cgroup.
func (r *fileReader) reset() { r.missing, r.err = false, nil }

// enter opens a directory of which several files are to be read, and closes the last one. leave closes it.
func (r *fileReader) enter(dir string) {
	r.leave()
	if r.err != nil {
		return
	}
	fd, err := retry(func() (int, error) { return unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		r.note(dir, err)
		return
	}
	r.dir, r.fd = dir, fd
}

func (r *fileReader) leave() {
	if r.dir != "" {
		unix.Close(r.fd)
		r.dir = ""
	}
}

// open opens a file.
func (r *fileReader) open(dir, file string) (int, error) {
	return retry(func() (int, error) {
		if r.dir == dir && dir != "" {
			return unix.Openat(r.fd, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		return unix.Open(dir+"/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
}

// read returns the file's content, which is valid until the next read; nil when it is not there, or after an error. The kernel
// gives a control file as a whole (but a list of processes, for which see lines): what does not fill the buffer is all of it.
func (r *fileReader) read(dir, file string) []byte {
	if r.err != nil {
		return nil
	}
	fd, err := r.open(dir, file)
	if err != nil {
		r.note(dir+"/"+file, err)
		return nil
	}
	defer unix.Close(fd)
	for n := 0; ; {
		got, err := retry(func() (int, error) { return unix.Read(fd, r.buf[n:]) })
		if err != nil {
			r.note(dir+"/"+file, err)
			return nil
		}
		if n += got; n < len(r.buf) {
			return r.buf[:n]
		}
		if n >= maxControlFile {
			r.note(dir+"/"+file, fmt.Errorf("it has more than %d bytes", maxControlFile))
			return nil
		}
		r.buf = append(r.buf, make([]byte, n)...)
	}
}

// lines counts the lines of a file of any length.
func (r *fileReader) lines(dir, file string) (n uint64) {
	if r.err != nil {
		return 0
	}
	fd, err := r.open(dir, file)
	if err != nil {
		r.note(dir+"/"+file, err)
		return 0
	}
	defer unix.Close(fd)
	for {
		got, err := retry(func() (int, error) { return unix.Read(fd, r.buf) })
		if err != nil {
			r.note(dir+"/"+file, err)
			return n
		}
		if got == 0 {
			return n
		}
		n += uint64(bytes.Count(r.buf[:got], []byte{'\n'}))
	}
}

// number reads a file with one number or "max".
func (r *fileReader) number(dir, file string) (uint64, bool) {
	raw := r.read(dir, file)
	if raw == nil {
		return 0, false
	}
	n, ok := parseNumber(raw)
	if !ok {
		r.note(dir+"/"+file, fmt.Errorf("%q is no number", firstLine(raw)))
	}
	return n, ok
}

// children lists the cgroups below a directory.
func (r *fileReader) children(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.note(dir, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// note keeps what went wrong. A cgroup that is removed while it is read answers ENODEV; a thread's, EOPNOTSUPP to a question
// about processes; and a kernel without PSI accounting (psi=0), EOPNOTSUPP to one about pressure.
func (r *fileReader) note(path string, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		r.missing = true
	case errors.Is(err, unix.EOPNOTSUPP):
	case r.err == nil:
		r.err = fmt.Errorf("read %s: %w", path, err)
	}
}

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}

func firstLine(raw []byte) []byte {
	line, _, _ := bytes.Cut(raw, []byte{'\n'})
	return line[:min(len(line), 80)]
}
