package ns

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Create makes the namespaces and pins them at dir/net, dir/ipc, dir/uts and dir/user, as far as asked for. The directory belongs to
// this package; Create makes it, its parent must exist. One that holds living pins fails with AlreadyExists, while
// what a reboot has left is replaced. A failure leaves nothing, not even the directory.
func Create(dir string, o Options) (err error) {
	sysctls, err := plan(o)
	if err != nil {
		return err
	}
	if o.Hostname != "" && !o.UTS {
		return fmt.Errorf("hostname %q: needs a UTS namespace of its own, the host's is not changed: %w", o.Hostname, errdefs.ErrInvalidArgument)
	}
	if o.User != nil {
		for name, list := range map[string][]IDMap{"user": o.User.UIDs, "group": o.User.GIDs} {
			if _, ok := root(list); !ok {
				return fmt.Errorf("user namespace: no mapping of %s id 0: %w", name, errdefs.ErrInvalidArgument)
			}
		}
	}
	for _, k := range kinds {
		switch pinned, err := Pinned(dir, k); {
		case err != nil:
			return err
		case pinned:
			return fmt.Errorf("%s: a namespace is pinned here: %w", Path(dir, k), errdefs.ErrAlreadyExists)
		}
	}
	if err := Remove(dir); err != nil {
		return fmt.Errorf("remove what is left from earlier: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(dir))
		}
	}()
	if !o.Apart {
		if err := isolate(dir); err != nil {
			return err
		}
	}
	return onThread(func() error { return fill(dir, o, sysctls) })
}

// isolate makes the directory a mount point that neither propagates what is mounted in it nor is part of anybody's
// recursive bind mount.
func isolate(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s upon itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_UNBINDABLE, ""); err != nil {
		return fmt.Errorf("make the mount at %s unbindable: %w", dir, err)
	}
	return nil
}

// fill moves the calling thread into new namespaces, sets them up and pins them.
func fill(dir string, o Options, sysctls []setting) error {
	flags := 0
	for _, k := range kinds {
		if o.has(k) {
			flags |= k.cloneFlag()
		}
	}
	switch {
	case flags == 0:
		return nil
	case o.User != nil:
		if err := enterNew(dir, flags, *o.User); err != nil {
			return err
		}
	default:
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("make new namespaces (unshare 0x%x): %w", flags, err)
		}
	}
	if o.Hostname != "" {
		if err := unix.Sethostname([]byte(o.Hostname)); err != nil {
			return fmt.Errorf("set hostname %q: %w", o.Hostname, err)
		}
	}
	for _, k := range kinds {
		if !o.has(k) || k == User {
			continue
		}
		if err := pin(Path(dir, k), "/proc/thread-self", k); err != nil {
			return err
		}
	}
	return set(slices.DeleteFunc(sysctls, setting.ofInterface), o.User, o.Procfs)
}

// enterNew moves the calling thread into new namespaces that belong to a new user namespace, which it pins. The thread itself
// stays in the user namespace that it is in, as a process of several threads must.
func enterNew(dir string, flags int, m Mappings) error {
	h, err := hold(flags, m)
	if err != nil {
		return err
	}
	defer h.end()
	if err := pin(Path(dir, User), h.proc(), User); err != nil {
		return err
	}
	for _, k := range kinds {
		if k == User || flags&k.cloneFlag() == 0 {
			continue
		}
		if err := join(h.proc()+"/ns/"+string(k), k); err != nil {
			return err
		}
	}
	return nil
}

// pin binds the namespace of a process or thread, given by its directory in /proc, to a new file.
func pin(path, proc string, k Kind) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o400)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount(proc+"/ns/"+string(k), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin the %s namespace at %s: %w", k, path, err)
	}
	return SetApart(path)
}

// SetApart keeps a pin out of recursive bind mounts, also one that Create has not made: that of a PID namespace. It is idempotent; nothing pinned
// there is no error.
func SetApart(pin string) error {
	if err := unix.Mount("", pin, "", unix.MS_UNBINDABLE, ""); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("make the mount at %s unbindable: %w", pin, err)
	}
	return nil
}
