//go:build cgo

package main

import (
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLog is the size at which the executor's own log begins a new file; one older file is kept, with the suffix ".1".
const maxLog = 8 << 20

// ownLog writes to standard error, and where that is a file keeps it from growing without bound: an executor lives as long as
// the machine, and its log lies where memory is the disk.
//
// Keeper and worker write to the same file, and what Go's runtime says when it gives up goes there too. So the descriptor itself is
// turned to the new file, by each process when it next writes.
type ownLog struct {
	limit int64

	mu sync.Mutex
}

func (l *ownLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(int64(len(p)))
	return os.Stderr.Write(p)
}

const oldSuffix = ".1"

// turn makes standard error the file into which the next bytes go. What fails leaves it as it is.
func (l *ownLog) turn(more int64) {
	var st unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return // a terminal, or a pipe to somebody who minds the size
	}
	path, err := os.Readlink("/proc/self/fd/2")
	if err != nil || strings.HasSuffix(path, " (deleted)") {
		return
	}
	path = strings.TrimSuffix(path, oldSuffix) // the other process has turned already
	if isFile(path, st) && st.Size+more <= l.limit {
		return
	}
	// One of the two begins the new file; the lock is on the old one, and the other finds that it is no longer there.
	lock, err := os.OpenFile("/proc/self/fd/2", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return
	}
	if isFile(path, st) {
		if err := os.Rename(path, path+oldSuffix); err != nil {
			return
		}
	}
	next, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer next.Close()
	for errors.Is(unix.Dup3(int(next.Fd()), unix.Stderr, 0), unix.EINTR) {
	}
}

// isFile reports whether the path is the file.
func isFile(path string, st unix.Stat_t) bool {
	var there unix.Stat_t
	return unix.Lstat(path, &there) == nil && there.Dev == st.Dev && there.Ino == st.Ino
}
