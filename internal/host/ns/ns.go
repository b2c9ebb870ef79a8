// Package ns makes Linux namespaces that no process lives in, and keeps them as bind mounts.
//
// It guarantees that Create leaves either all the namespaces asked for or nothing, that a namespace lives until Remove
// (or the host's end) whatever happens to the processes that join it or to the process that made it, and that Remove
// needs no memory of Create: it works on whatever it finds, also after a reboot has taken the mounts.
//
// It does not bring up the loopback device nor configure any other: that is the network package's.
//
// # Where the mounts live
//
// A bind mount of a namespace file is copied into every mount namespace that is made while it exists, and a shared
// mount would even send it to those that exist already. So Create turns the directory into a private mount point of its own
// before it pins anything: what is mounted there later reaches no other mount namespace. A container that is started
// afterwards does get a copy with its mount namespace, until pivot_root detaches it a moment later; a copy in a foreign
// mount namespace keeps the namespace alive, but never keeps Remove from working here, since since Linux 3.18 unlinking
// a mount point is allowed when it is one in other mount namespaces only.
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
)

// kinds are all of them, in the order in which they are pinned.
var kinds = [...]Kind{Network, IPC, UTS}

// cloneFlag is the kind's flag for unshare(2) and setns(2).
func (k Kind) cloneFlag() int {
	switch k {
	case Network:
		return unix.CLONE_NEWNET
	case IPC:
		return unix.CLONE_NEWIPC
	case UTS:
		return unix.CLONE_NEWUTS
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
}

// has reports whether a namespace of this kind is asked for.
func (o Options) has(kind Kind) bool {
	switch kind {
	case Network:
		return o.Network
	case IPC:
		return o.IPC
	case UTS:
		return o.UTS
	}
	return false
}

// Path returns where Create pins the namespace of this kind in the directory.
func Path(dir string, kind Kind) string { return filepath.Join(dir, string(kind)) }

// Pinned reports whether a namespace of this kind is pinned in the directory. A plain file, which is what a reboot
// leaves of a pin, is none.
func Pinned(dir string, kind Kind) (bool, error) {
	path := Path(dir, kind)
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("statfs %s: %w", path, err)
	}
	return st.Type == unix.NSFS_MAGIC, nil
}
