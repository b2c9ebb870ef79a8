package ns

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// procfsUses is how many times a procfs is used before another takes its place.
const procfsUses = 32

// Procfs is where sysctls of pods are written: a procfs of its own, mounted nowhere, and from time to time another one. The kernel keeps
// the names that were looked up in a procfs as long as that is there, and goes through those of all namespaces for each: in the host's, with
// a thousand pods, that takes longer than all else of a namespace's making, and everybody else's look there as well.
//
// Its zero value is usable; it is safe for concurrent use.
type Procfs struct {
	mu   sync.Mutex
	sys  *os.File // its directory of sysctls; nil: none is open
	uses int      // of it
}

// open returns a descriptor of the directory of sysctls, which is the caller's to close. It is the host's where this process may have no procfs of
// its own, and for a nil Procfs.
func (p *Procfs) open() (int, error) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.uses++; p.sys == nil || p.uses > procfsUses {
			if sys, err := newProcfs(); err == nil {
				if p.sys != nil {
					p.sys.Close()
				}
				p.sys, p.uses = sys, 1
			}
		}
		if p.sys != nil {
			return unix.FcntlInt(p.sys.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		}
	}
	fd, err := unix.Open("/proc/sys", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: "/proc/sys", Err: err}
	}
	return fd, nil
}

func newProcfs() (sys *os.File, err error) {
	conf, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(conf)
	if err := unix.FsconfigCreate(conf); err != nil {
		return nil, err
	}
	mnt, err := unix.Fsmount(conf, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(mnt)
	fd, err := unix.Openat(mnt, "sys", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/proc/sys"), nil
}

// Write sets a sysctl in the calling thread's namespaces, by its path below /proc/sys.
func (p *Procfs) Write(path, value string) error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return writeAt(root, path, value)
}

// Read returns a sysctl of the calling thread's namespaces, by its path below /proc/sys.
func (p *Procfs) Read(path string) (string, error) {
	root, err := p.open()
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	f, err := openAt(root, path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	return string(raw), err
}

func writeAt(root int, path, value string) error {
	f, err := openAt(root, path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func openAt(root int, path string, flags int) (*os.File, error) {
	fd, err := unix.Openat(root, path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/sys/" + path, Err: err}
	}
	return os.NewFile(uintptr(fd), "/proc/sys/"+path), nil
}
