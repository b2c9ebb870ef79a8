package crilog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// A log's path leads through directories into which a container may write (a hostPath volume of /var/log), and whose entries it may
// replace at any time. So a path is walked once, to the folder that the file lies in, by the rule below; after that the file is reached
// by the folder's descriptor and its own name only, and is never anything but a regular file.
//
// The rule: a path with "/./" in it is free of symbolic links, and none is followed anywhere in it. (The runtime resolves the pod's log
// directory, which the administrator may have put behind a link, once, before a container of the pod runs.) In any other path, as
// callers before this rule have given them, the last two elements, CONTAINER/N.log below the pod's directory, may be no links.

// resolved is what tells a path that is free of links from others. To the kernel it means nothing.
const resolved = "/./"

// openFolder opens the directory that a log file lies in, and returns the file's name in it.
func openFolder(path string) (dir *os.File, base string, err error) {
	parent, base := filepath.Split(filepath.Clean(path))
	parent = cmp.Or(filepath.Clean(parent), ".")
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	at, name := unix.AT_FDCWD, parent
	if !strings.Contains(path, resolved) {
		at, err = retry(func() (int, error) {
			return unix.Open(filepath.Dir(parent), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		})
		if err != nil {
			return nil, "", &os.PathError{Op: "open", Path: filepath.Dir(parent), Err: err}
		}
		defer unix.Close(at)
		if name = filepath.Base(parent); name == "/" {
			name = "."
		}
	}
	fd, err := retry(func() (int, error) { return unix.Openat2(at, name, how) })
	if errors.Is(err, unix.ELOOP) {
		return nil, "", fmt.Errorf("the folder %s: there is a symbolic link where none may be: %w: %w", parent, err, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: parent, Err: err}
	}
	return os.NewFile(uintptr(fd), parent), base, nil
}

// maxTries bounds how often a name is looked at again that somebody makes and removes meanwhile.
const maxTries = 16

// openIn opens a log file in its folder, and with create makes it when there is none. What is no regular file is not opened: to open a
// FIFO waits, to open a device acts, and a link leads elsewhere.
func openIn(dir *os.File, base string, create bool) (*os.File, error) {
	path := filepath.Join(dir.Name(), base)
	for range maxTries {
		if create {
			f, err := createIn(dir, base)
			if !errors.Is(err, fs.ErrExist) {
				return f, err
			}
		}
		found, err := retry(func() (int, error) {
			return unix.Openat(int(dir.Fd()), base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		if errors.Is(err, unix.ENOENT) && create {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		f, err := openFound(found, path)
		unix.Close(found)
		return f, err
	}
	return nil, fmt.Errorf("%s comes and goes while it is opened: %w", path, errdefs.ErrUnavailable)
}

// openFound opens for reading and writing what was found, if it is a regular file.
func openFound(found int, path string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is no regular file (mode %#o): move it away: %w", path, st.Mode, errdefs.ErrFailedPrecondition)
	}
	fd, err := retry(func() (int, error) {
		return unix.Open(fmt.Sprintf("/proc/self/fd/%d", found), unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// createIn makes a log file that is not there: fs.ErrExist where there is anything of that name, a dangling link too.
func createIn(dir *os.File, base string) (*os.File, error) {
	path := filepath.Join(dir.Name(), base)
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(dir.Fd()), base, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
	})
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// retry repeats a call that a signal has interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		fd, err := call()
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// namesIn lists a folder.
func namesIn(dir *os.File) ([]string, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir.Name(), Err: err}
	}
	list := os.NewFile(uintptr(fd), dir.Name())
	defer list.Close()
	names, err := list.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// removeIn removes a file of a folder; one that is not there is no error.
func removeIn(dir *os.File, base string) error {
	if err := unix.Unlinkat(int(dir.Fd()), base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: filepath.Join(dir.Name(), base), Err: err}
	}
	return nil
}

// renameIn renames within a folder. flags are those of renameat2(2).
func renameIn(dir *os.File, from, to string, flags uint) error {
	if err := unix.Renameat2(int(dir.Fd()), from, int(dir.Fd()), to, flags); err != nil {
		return &os.LinkError{Op: "rename", Old: filepath.Join(dir.Name(), from), New: filepath.Join(dir.Name(), to), Err: err}
	}
	return nil
}

// rotated returns the names of the files in a folder that were rotated away, the oldest first, those included that a kubelet has
// compressed.
func rotated(dir *os.File, base string) (old []string, err error) {
	names, err := namesIn(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if stamp, ok := strings.CutPrefix(name, base+"."); ok && isStamp(strings.TrimSuffix(stamp, ".gz")) {
			old = append(old, name)
		}
	}
	slices.Sort(old)
	return old, nil
}
