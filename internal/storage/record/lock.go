package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerFile says who has the directory.
const ownerFile = ".monopod"

// lock has a directory of volumes for one node. What is locked is the directory itself, which needs no room on a full disk; the file in it only says who has it.
// The kernel drops it with the process. The methods do nothing on nil.
type lock struct {
	dir, node string
	held      *os.File
}

func (l *lock) file() string { return filepath.Join(l.dir, ownerFile) }

// take locks the directory that is there now, if it is not the one that is locked already. It must be one into which nobody else can put anything.
func (l *lock) take() error {
	if l == nil {
		return nil
	}
	f, err := os.Open(l.dir)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	if l.held != nil {
		if had, err := l.held.Stat(); err == nil && os.SameFile(had, info) {
			return f.Close()
		}
	}
	err = safe(l.dir, info)
	if err == nil {
		err = l.flock(f)
	}
	if err != nil {
		f.Close()
		return err
	}
	l.drop()
	l.held = f
	// For people who find it taken; on a disk without room they are told less.
	_ = os.WriteFile(l.file(), fmt.Appendf(nil, "node %s, process %d\n", l.node, os.Getpid()), 0o600)
	return nil
}

func (l *lock) flock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil // where directories cannot be locked, on NFS say, the records say whose each volume is
	}
	who, _ := os.ReadFile(l.file())
	return fmt.Errorf("another monopod (%s) has its volumes in %s: stop it, or choose another storage.directory", strings.TrimSpace(string(who)), l.dir)
}

// safe refuses a directory in which other users could put what they like in the place of volumes.
func safe(dir string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case ok && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("the user %d owns %s, who could change what volumes are: give it to root (chown root %s), or choose another storage.directory", st.Uid, dir, dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others than root may write to %s (its mode is %#o): narrow it (chmod go-w %s), or choose another storage.directory", dir, info.Mode().Perm(), dir)
	}
	return nil
}

func (l *lock) drop() {
	if l != nil && l.held != nil {
		l.held.Close()
		l.held = nil
	}
}
