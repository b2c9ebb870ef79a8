//go:build cgo

package ocicmd

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// idMaps say which IDs of the host a container's are. Without any they are the same.
type idMaps struct{ uids, gids []specs.LinuxIDMapping }

// idMapsOf are those of a process's user namespace.
func idMapsOf(pid int) idMaps {
	return idMaps{readIDMap(fmt.Sprintf("/proc/%d/uid_map", pid)), readIDMap(fmt.Sprintf("/proc/%d/gid_map", pid))}
}

func readIDMap(path string) (all []specs.LinuxIDMapping) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var m specs.LinuxIDMapping
		if n, _ := fmt.Sscan(lines.Text(), &m.ContainerID, &m.HostID, &m.Size); n == 3 {
			all = append(all, m)
		}
	}
	return all
}

// hostID is the host's ID of a container's; one that is not mapped is nobody's.
func hostID(all []specs.LinuxIDMapping, id uint32) uint32 {
	for _, m := range all {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return m.HostID + id - m.ContainerID
		}
	}
	if len(all) == 0 {
		return id
	}
	return 65534
}

// asUser calls a function on a thread that has the rights to files which a process will have, and none but these. It says whether it could.
func asUser(p *specs.Process, ids idMaps, f func()) bool {
	done := make(chan bool)
	go func() {
		runtime.LockOSThread() // and never given back: the thread ends with this goroutine
		ok := becomeUser(p, ids) == nil
		if ok {
			f()
		}
		done <- ok
	}()
	return <-done
}

// becomeUser is for the calling thread alone, as the functions of package unix that set groups are not.
func becomeUser(p *specs.Process, ids idMaps) error {
	groups := []uint32{0}[:0]
	for _, g := range p.User.AdditionalGids {
		groups = append(groups, hostID(ids.gids, g))
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); e != 0 {
		return e
	}
	uid, gid := int(hostID(ids.uids, p.User.UID)), int(hostID(ids.gids, p.User.GID))
	// These two say nothing of a failure; asked for what cannot be, they tell what is.
	_, _ = unix.SetfsgidRetGid(gid)
	_, _ = unix.SetfsuidRetUid(uid)
	if g, _ := unix.SetfsgidRetGid(-1); g != gid {
		return unix.EPERM
	}
	if u, _ := unix.SetfsuidRetUid(-1); u != uid {
		return unix.EPERM
	}
	var effective uint32
	for name, bit := range map[string]int{"CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH} {
		if c := p.Capabilities; c == nil && p.User.UID == 0 || c != nil && slices.Contains(c.Effective, name) {
			effective |= 1 << bit
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	data[0].Effective &= effective
	data[1].Effective = 0
	return unix.Capset(&head, &data[0])
}
