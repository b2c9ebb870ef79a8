// Package ns makes namespaces in which no process lives, and keeps each of them by a bind mount of its handle.
//
// Create takes one system thread into new namespaces, mounts their handles and lets the thread end; what is left are
// the files in Config.Dir. A process joins them by setns(2) on those paths. They end when Remove unmounts the files and
// nobody is inside any more.
//
// It guarantees that a failed Create leaves nothing, and that no thread that has been in a new namespace is used for
// anything else.
package ns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Kind is a kind of namespace, by its name in /proc/PID/ns.
type Kind string

// The kinds that can be without a process. (A PID namespace ends with its first process.)
const (
	Net Kind = "net"
	IPC Kind = "ipc"
	UTS Kind = "uts"
)

var cloneFlags = map[Kind]int{Net: unix.CLONE_NEWNET, IPC: unix.CLONE_NEWIPC, UTS: unix.CLONE_NEWUTS}

// Config says what to make.
type Config struct {
	// Dir is the directory of the handles, one file a kind; it is made when it is missing.
	Dir   string
	Kinds []Kind
	// Hostname is set in the new UTS namespace; it needs the kind UTS.
	Hostname string
	// Sysctls are written inside the new namespaces, by their path below /proc/sys ("net/ipv4/ip_forward"). A caller
	// names only such as belong to one of Kinds: another one would be the host's.
	Sysctls map[string]string
}

// Path is the handle of one kind in dir.
func Path(dir string, k Kind) string { return filepath.Join(dir, string(k)) }

// Create makes the namespaces.
func Create(cfg Config) (err error) {
	if cfg.Hostname != "" && !slices.Contains(cfg.Kinds, UTS) {
		return fmt.Errorf("host name %q: it needs a UTS namespace of its own", cfg.Hostname)
	}
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(cfg.Dir))
		}
	}()
	for _, k := range cfg.Kinds {
		f, err := os.OpenFile(Path(cfg.Dir, k), os.O_CREATE|os.O_EXCL, 0o444)
		if err != nil {
			return err
		}
		f.Close()
	}
	return onOwnThread(func() error { return create(cfg) })
}

// create runs on a thread that ends afterwards.
func create(cfg Config) error {
	flags := 0
	for _, k := range cfg.Kinds {
		flag, ok := cloneFlags[k]
		if !ok {
			return fmt.Errorf("a namespace of kind %q cannot be made without a process", k)
		}
		flags |= flag
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare %v: %w", cfg.Kinds, err)
	}
	if cfg.Hostname != "" {
		if err := unix.Sethostname([]byte(cfg.Hostname)); err != nil {
			return fmt.Errorf("set the host name %q: %w", cfg.Hostname, err)
		}
	}
	for name, value := range cfg.Sysctls {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
			return fmt.Errorf("sysctl %s=%s: %w", name, value, err)
		}
	}
	for _, k := range cfg.Kinds {
		if err := unix.Mount("/proc/thread-self/ns/"+string(k), Path(cfg.Dir, k), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep the %s namespace at %s: %w", k, Path(cfg.Dir, k), err)
		}
	}
	return nil
}

// onOwnThread runs f on a system thread that is ended afterwards.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the Go runtime ends the thread together with the goroutine.
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			done <- f()
			return
		}
		// The main thread cannot be ended, and /proc/self is its. While it is held here another one does the work.
		inner := onOwnThread(f)
		runtime.UnlockOSThread()
		done <- inner
	}()
	return <-done
}

// Pinned reports whether the file is the handle of a namespace, and not a plain file that lost its mount.
func Pinned(path string) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return st.Type == unix.NSFS_MAGIC, nil
}

// Remove lets go of all namespaces in dir and removes it. It is idempotent.
func Remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		// A handle may have been mounted over more than once; EINVAL says that nothing is mounted any more.
		for err = nil; err == nil; {
			err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if !errors.Is(err, unix.EINVAL) {
			errs = append(errs, &fs.PathError{Op: "unmount", Path: path, Err: err})
			continue
		}
		errs = append(errs, os.Remove(path))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(dir)
}
