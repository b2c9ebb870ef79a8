// Package bootfile writes small JSON files that mean nothing after a restart of the machine.
//
// A reader, and a process killed at any point, sees the old content or the new one, never a part. Nothing is synced
// to the disk: what the kernel has taken survives the death of any process, and these files tell of processes, which do
// not survive the kernel either. (Each carries the boot id, so that a file of an earlier boot is known for what it is.)
//
// Format: each Write appends one line, and the last whole line counts. That costs a fraction of a file made beside the old one and
// renamed, for which ext4 makes an inode, frees another and begins to write. A file of one document without a line's end, as earlier
// versions wrote it, is read as well. One that has become large is written anew.
package bootfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// large is the size in bytes beyond which a file is written anew.
const large = 64 << 10

// Write makes v, as JSON, the content of the file at path; a new file has the mode 0600. The directory must exist.
func Write(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fd, err := open(path)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Size > large {
		return replace(path, append(raw, '\n'))
	}
	// The line's end before it closes what a writer that was killed may have left.
	line := make([]byte, 0, len(raw)+2)
	line = append(append(append(line, '\n'), raw...), '\n')
	if err := writeAll(fd, line); err != nil {
		_ = unix.Ftruncate(fd, st.Size) // a part counts for nothing in any case
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.ErrShortWrite
		}
		b = b[max(n, 0):]
	}
	return nil
}

// replace puts a new file in the place of one.
func replace(path string, raw []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(raw); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Read decodes the content of the file at path into v, which is a pointer to something empty. A file into which nothing was written
// whole is fs.ErrNotExist.
func Read(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(raw) > 0 && bytes.IndexByte(raw, '\n') < 0 {
		if err := json.Unmarshal(raw, v); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	end := bytes.LastIndexByte(raw, '\n')
	var first error
	for end > 0 {
		begin := bytes.LastIndexByte(raw[:end], '\n')
		line := raw[begin+1 : end]
		if end = begin; len(line) == 0 {
			continue
		}
		if json.Valid(line) {
			if err := json.Unmarshal(line, v); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		}
		if first == nil { // the rest of a writer that was killed, when a whole one comes before
			first = fmt.Errorf("%s: a line of it is no JSON", path)
		}
	}
	if first != nil {
		return first
	}
	return fmt.Errorf("%s: nothing was written into it: %w", path, fs.ErrNotExist)
}
