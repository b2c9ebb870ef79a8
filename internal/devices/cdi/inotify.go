package cdi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// What is told of a directory. Names are those that come and go in it; contents are writes to its files as well. A directory of device
// nodes must never be watched for its contents: each write to /dev/null would be told.
const (
	comesAndGoes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	allChanges   = comesAndGoes | unix.IN_CLOSE_WRITE | unix.IN_MODIFY
)

// notifier is an inotify(7) instance that watches directories, each under all the paths that lead to it. fsnotify cannot be told to
// leave out writes.
type notifier struct {
	fd   int
	file *os.File
	// changed has the path of each thing that has changed; an empty one when the kernel has lost some.
	changed chan string
	done    chan struct{}
	reader  sync.WaitGroup

	mu    sync.Mutex
	paths map[int32][]string
	ids   map[string]int32
}

func newNotifier() (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w; look at the sysctl fs.inotify.max_user_instances", err)
	}
	n := &notifier{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), changed: make(chan string), done: make(chan struct{}),
		paths: map[int32][]string{}, ids: map[string]int32{}}
	n.reader.Go(n.read)
	return n, nil
}

func (n *notifier) close() {
	close(n.done)
	n.file.Close() // ends a read that waits
	n.reader.Wait()
}

// add watches the directory that a path leads to.
func (n *notifier) add(path string, mask uint32) error {
	n.mu.Lock() // an event that comes before the id is known must wait for it
	defer n.mu.Unlock()
	id, err := unix.InotifyAddWatch(n.fd, path, mask|unix.IN_MASK_ADD)
	if err != nil {
		return err
	}
	if old, ok := n.ids[path]; ok && old != int32(id) {
		n.forget(path, old)
	}
	n.ids[path] = int32(id)
	if !slices.Contains(n.paths[int32(id)], path) {
		n.paths[int32(id)] = append(n.paths[int32(id)], path)
	}
	return nil
}

// has says whether a path is watched. A directory that is gone has lost its watch, also where another one has taken its inode.
func (n *notifier) has(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.ids[path]
	return ok
}

func (n *notifier) remove(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id, ok := n.ids[path]; ok {
		n.forget(path, id)
	}
}

// forget is called with mu held. The watch goes with the last path to its directory.
func (n *notifier) forget(path string, id int32) {
	delete(n.ids, path)
	n.paths[id] = slices.DeleteFunc(n.paths[id], func(p string) bool { return p == path })
	if len(n.paths[id]) == 0 {
		delete(n.paths, id)
		_, _ = unix.InotifyRmWatch(n.fd, uint32(id)) // a directory that is gone has lost it already
	}
}

// read runs until close.
func (n *notifier) read() {
	buf := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			if !n.tell("") {
				return
			}
			continue
		}
		for rest := buf[:size]; len(rest) >= unix.SizeofInotifyEvent; {
			id := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			if end > len(rest) {
				break
			}
			name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00"))
			rest = rest[end:]
			for _, path := range n.concerned(id, mask) {
				if !n.tell(filepath.Join(path, name)) {
					return
				}
			}
		}
	}
}

// concerned are the paths of the directory of an event.
func (n *notifier) concerned(id int32, mask uint32) []string {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return []string{""}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	paths := slices.Clone(n.paths[id])
	if mask&unix.IN_IGNORED != 0 {
		delete(n.paths, id)
		for _, p := range paths {
			if n.ids[p] == id {
				delete(n.ids, p)
			}
		}
	}
	return paths
}

func (n *notifier) tell(path string) bool {
	select {
	case n.changed <- path:
		return true
	case <-n.done:
		return false
	}
}
