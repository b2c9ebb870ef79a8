// Package volatilefile writes small JSON files that mean nothing after a restart of the machine.
//
// A reader, and a process killed at any point, sees the old content or the new one, never a part. Nothing is synced
// to the disk: what the kernel has taken survives the death of any process, and these files tell of processes, which do
// not survive the kernel either. (Each carries the boot id, so that a file of an earlier boot is known for what it is.)
//
// Format: each Write appends one line, and the last whole line counts. That costs a fraction of a file made beside the old one and
// renamed, for which ext4 makes an inode, frees another and begins to write. A file of one document without a line's end, as earlier
// versions wrote it, is read as well. One that has become large is written anew.
//
// What is written by Keep, or into a file that Reserve has made, can be written again when the disk is full.
package volatilefile

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

	"monopod.dev/monopod/internal/kit/preallocate"
)

// large is the size in bytes beyond which a file is written anew.
const large = 64 << 10

// Write makes v, as JSON, the content of the file at path; a new file has the mode 0600. The directory must exist.
func Write(path string, v any) error { return write(path, v, 0) }

// spare is how many further contents, of the size of the one that is written, Keep has room for: a record of a process has its start, its
// end and its removal before it.
const spare = 4

// Keep is Write for what must be changed even when the disk is full. A new file is not made, and nothing is left, where there is no room for
// that; one that is there is written to as long as there is room for it.
func Keep(path string, v any) error { return write(path, v, spare) }

// Reserve makes a file into which nothing is written yet, with room for so many bytes. One that is there is left as it is.
func Reserve(path string, room int64) error {
	fd, err := open(path)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Size > 0 {
		return nil
	}
	return reserve(fd, path, 0, room)
}

// reserve takes room in an open file; from a new one, for which there is none, nothing is left.
func reserve(fd int, path string, size, room int64) error {
	err := preallocate.Ahead(fd, size, room)
	if err == nil || size > 0 {
		return nil // what there is of room may do
	}
	return errors.Join(&os.PathError{Op: "fallocate", Path: path, Err: err}, os.Remove(path))
}

func write(path string, v any, spare int64) error {
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
		err := replace(path, append(raw, '\n'), spare)
		if spare == 0 || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		// There is no room for a second file; there is in this one.
	}
	// The line's end before it closes what a writer that was killed may have left.
	line := make([]byte, 0, len(raw)+2)
	line = append(append(append(line, '\n'), raw...), '\n')
	// Twice what is needed is taken, so that it is taken once for most files.
	if n := int64(len(line)); spare > 0 && st.Blocks*blockSize < st.Size+(1+spare)*n {
		if err := reserve(fd, path, st.Size, (1+2*spare)*n); err != nil {
			return err
		}
	}
	if err := writeAll(fd, line); err != nil {
		_ = unix.Ftruncate(fd, st.Size) // a part counts for nothing in any case
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// blockSize is the unit of st_blocks.
const blockSize = 512

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
func replace(path string, raw []byte, spare int64) (err error) {
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
	if spare > 0 {
		if err = preallocate.Ahead(int(tmp.Fd()), 0, (1+2*spare)*int64(len(raw))); err != nil {
			return err
		}
	}
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
