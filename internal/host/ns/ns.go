// Package ns makes Linux namespaces that no process lives in, and keeps them as bind mounts.
//
// It guarantees that Create leaves either all the namespaces asked for or nothing, that a namespace lives until Remove
// (or the host's end) whatever happens to the processes that join it or to the process that made it, and that Remove
// needs no memory of Create: it works on whatever it finds, also after a reboot has taken the mounts.
//
// With Options.User the namespaces belong to a new user namespace, which is pinned as well: root in it may then configure the
// others, and nothing else of the host.
//
// It does not bring up the loopback device nor configure any other: that is the network package's.
//
// # Where the pins live
//
// A pin is a mount, and a copy of it in another mount namespace would keep the network namespace alive, with its devices
// and addresses, after the sandbox is gone. Copies come about in three ways, and each is dealt with:
//   - propagation: the run directory may lie on a shared mount. So Create first binds the pin directory upon
//     itself and takes that mount out of its peer group; what is mounted inside it reaches nobody. With Options.Apart its caller has
//     done so for many of them: that bind mount costs the more, the more is mounted where the directory is.
//   - a recursive bind mount of a directory above it (a hostPath volume of "/"): the pins, and the pin directory's mount, are
//     unbindable, so that such a volume leaves them out.
//   - a new mount namespace, which starts as a copy of all mounts: a container drops them with its pivot_root.
//
// A copy that somebody makes all the same never keeps Remove from working: since Linux 3.18 a directory can be removed
// that is a mount point in other mount namespaces only.
package ns

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kind is the name of a namespace's kind, as under /proc/PID/ns.
type Kind string

// The kinds that can be pinned.
const (
	Network Kind = "net"
	IPC     Kind = "ipc"
	UTS     Kind = "uts"
	User    Kind = "user"
	// PID namespaces are not made here, because each needs a first process; see PreparePID.
	PID Kind = "pid"
)

// kinds are those that Create makes, in the order in which they are pinned.
var kinds = [...]Kind{User, Network, IPC, UTS}

// cloneFlag is the kind's flag for unshare(2) and setns(2).
func (k Kind) cloneFlag() int {
	switch k {
	case Network:
		return unix.CLONE_NEWNET
	case IPC:
		return unix.CLONE_NEWIPC
	case UTS:
		return unix.CLONE_NEWUTS
	case User:
		return unix.CLONE_NEWUSER
	}
	return 0
}

// Options say which namespaces to make and what to set in them.
type Options struct {
	Network, IPC, UTS bool
	// Hostname is set in the new UTS namespace; empty: it keeps the host's.
	Hostname string
	// Sysctls are set in the new namespaces, by their dotted or slashed name. Only those that belong to one of the
	// namespaces asked for are allowed; see CheckSysctls.
	Sysctls map[string]string
	// Defaults are set as well, unless Sysctls name them, the namespaces asked for are not theirs, or the kernel has none of that name.
	Defaults map[string]string
	// Procfs is where they are written; nil: in the host's.
	Procfs *Procfs
	// Apart says that the directory is on a mount that shares with none (mount.Separate), so that it needs none of its own.
	Apart bool
	// User asks for a new user namespace with these mappings, to which the other new namespaces belong. Users and groups need
	// a mapping of id 0.
	User *Mappings
}

// Mappings say which ids of the host the ids of a user namespace are (user_namespaces(7)).
type Mappings struct{ UIDs, GIDs []IDMap }

// IDMap maps Length ids from ContainerID on to those from HostID on.
type IDMap struct{ ContainerID, HostID, Length uint32 }

// root is the id of the host that a list maps id 0 to.
func root(list []IDMap) (uint32, bool) {
	for _, m := range list {
		if m.ContainerID == 0 && m.Length > 0 {
			return m.HostID, true
		}
	}
	return 0, false
}

// has tells whether the options ask for a namespace of this kind.
func (o Options) has(k Kind) bool {
	return k == Network && o.Network || k == IPC && o.IPC || k == UTS && o.UTS || k == User && o.User != nil
}

// Path returns where Create pins the namespace of this kind in the directory.
func Path(dir string, kind Kind) string { return filepath.Join(dir, string(kind)) }

// Pinned tells whether the directory holds a living namespace of this kind: false after Remove, and for the plain file
// that a reboot leaves of a pin.
func Pinned(dir string, kind Kind) (bool, error) {
	var st unix.Statfs_t
	switch err := unix.Statfs(Path(dir, kind), &st); {
	case err == nil:
		return st.Type == unix.NSFS_MAGIC, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return false, nil
	default:
		return false, fmt.Errorf("statfs %s: %w", Path(dir, kind), err)
	}
}
