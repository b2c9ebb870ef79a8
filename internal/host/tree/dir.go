package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// batch is how many bytes of names are read of a directory at a time.
const batch = 8 << 10

// entry is a name of a directory. Its kind is one of unix.DT_*; next is where reading goes on behind it.
type entry struct {
	name string
	kind uint8
	next int64
}

// listing reads the names of an open directory, as many at a time as its buffer holds.
type listing struct {
	fd    int
	buf   []byte
	at, n int
}

// read returns the next name, and io.EOF at the end. pause is called before each batch.
func (l *listing) read(pause func() error) (entry, error) {
	for {
		for l.at < l.n {
			// struct linux_dirent64: u64 d_ino, s64 d_off, u16 d_reclen, u8 d_type, the name with a zero behind it
			rec := l.buf[l.at:l.n]
			length := int(binary.NativeEndian.Uint16(rec[16:]))
			l.at += length
			name, _, _ := bytes.Cut(rec[19:length], []byte{0})
			if s := string(name); binary.NativeEndian.Uint64(rec) != 0 && s != "." && s != ".." {
				return entry{name: s, kind: rec[18], next: int64(binary.NativeEndian.Uint64(rec[8:]))}, nil
			}
		}
		if err := pause(); err != nil {
			return entry{}, err
		}
		n, err := unix.Getdents(l.fd, l.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == 0, errors.Is(err, unix.ENOENT): // ENOENT: it was removed
			return entry{}, io.EOF
		case err != nil:
			return entry{}, err
		}
		l.at, l.n = 0, n
	}
}

// seek has reading go on at a place that an entry told, or at the beginning, 0.
func (l *listing) seek(to int64) error {
	l.at, l.n = 0, 0
	_, err := unix.Seek(l.fd, to, unix.SEEK_SET)
	return err
}

// openDir opens a directory in an open one to be read. A link, and what is mounted there, is not opened: ELOOP or ENOTDIR, and EXDEV.
func openDir(dir int, name string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOATIME,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
	for {
		fd, err := unix.Openat2(dir, name, how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // EAGAIN: somebody renames at the same moment
		case errors.Is(err, unix.EPERM) && how.Flags&unix.O_NOATIME != 0: // it belongs to somebody else, and this process may not all
			how.Flags &^= unix.O_NOATIME
		default:
			return fd, err
		}
	}
}

func retried(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
