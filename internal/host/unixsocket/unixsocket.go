// Package unixsocket makes unix sockets at paths that others know, beside programs that may want the same path.
//
// It guarantees that a socket accepts connections before it has its name, that it has never had a wider mode than 0600, and that nobody's
// living socket is replaced. Between two programs that both find a dead socket at the same moment the last one wins; the other one sees that
// its socket is gone.
package unixsocket

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// HiddenPrefix begins the names that sockets have, in the folder of their path, before they get it.
const HiddenPrefix = ".k-"

const (
	// maxPath is what sockaddr_un holds, in bytes.
	maxPath = 107
	// randomBytes make the hidden names differ.
	randomBytes = 4
)

// ID is which file a path leads to. A program that is started again binds a new one, which may be given the same inode number.
type ID struct {
	dev, ino uint64
	born     unix.StatxTimestamp
}

// At returns which file a path leads to, and the type bits of its mode (unix.S_IFSOCK for a socket). It follows no link. The error is a
// *fs.PathError.
func At(path string) (id ID, mode uint32, err error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return ID{}, 0, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return ID{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, st.Btime}, uint32(st.Mode) & unix.S_IFMT, nil
}

// Check says why a path cannot be a socket's; nil: it can.
func Check(path string) error {
	switch hidden := filepath.Join(filepath.Dir(path), HiddenPrefix) + strings.Repeat("0", 2*randomBytes); {
	case !filepath.IsAbs(path):
		return fmt.Errorf("socket %q: the path is not absolute", path)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("socket %q: the path has a zero byte", path)
	case max(len(path), len(hidden)) > maxPath:
		return fmt.Errorf("socket %q: the path has %d bytes, and at most %d are possible (%d in the folder's part): choose a shorter one",
			path, len(path), maxPath, maxPath-len(filepath.Base(hidden))-1)
	}
	return nil
}

// Served says whether somebody accepts connections at a socket.
func Served(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		// A socket whose queue is full is served, by somebody who is slow.
		return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
	}
	conn.Close()
	return true
}

// Listen makes a socket that is root's alone, and accepts connections there. It has its mode from the begin: bind(2) makes it with the mode of
// the descriptor's own inode. Closing the listener does not remove it.
func Listen(ctx context.Context, path string) (*net.UnixListener, error) {
	rootOnly := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, cerr)
	}}
	l, err := rootOnly.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false) // it may have another name by then
	return listener, nil
}

// Hidden makes a socket of mode 0600 in a folder, under a name that begins with HiddenPrefix, and accepts connections there. Show gives it
// the name that others know; closing the listener removes neither name.
func Hidden(ctx context.Context, dir string) (listener *net.UnixListener, hidden string, id ID, err error) {
	var random [randomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	hidden = filepath.Join(dir, HiddenPrefix+hex.EncodeToString(random[:]))
	if listener, err = Listen(ctx, hidden); err != nil {
		return nil, "", ID{}, err
	}
	if id, _, err = At(hidden); err != nil {
		listener.Close()
		os.Remove(hidden)
		return nil, "", ID{}, err
	}
	return listener, hidden, id, nil
}

// Show gives a hidden socket the name path, in the place of what is there: by a link, because some who wait for the name only see its
// creation, which a rename is not to all of them. The hidden name is gone afterwards, also with an error.
func Show(hidden, path string) error {
	defer os.Remove(hidden)
	os.Remove(path)
	err := os.Link(hidden, path)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		err = os.Rename(hidden, path) // a file system without links
	}
	return err
}
