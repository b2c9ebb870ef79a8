package ns

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// holder is a process that does nothing but be in new namespaces.
type holder struct{ process *os.Process }

// hold starts one. A thread of a program that has several can enter any namespace but a new user namespace; so a child is born in
// it. It executes this very program, for there may be no other on the host, but runs none of it: it is traced, and
// a traced process stops before its first instruction. Should this process die now, its death kills the child.
//
// The calling thread is the tracer: it must be locked to its goroutine until end.
func hold(flags int, m Mappings) (*holder, error) {
	process, err := os.StartProcess("/proc/self/exe", []string{"namespaces"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Ptrace: true, Pdeathsig: unix.SIGKILL, Cloneflags: uintptr(flags | unix.CLONE_NEWUSER),
		UidMappings: sysMappings(m.UIDs), GidMappings: sysMappings(m.GIDs), GidMappingsEnableSetgroups: true,
	}})
	switch {
	case errors.Is(err, unix.ENOSPC):
		return nil, fmt.Errorf("make a user namespace: this host allows no more of them (/proc/sys/user/max_user_namespaces): %w: %w", err, errdefs.ErrFailedPrecondition)
	case err != nil:
		return nil, fmt.Errorf("make a user namespace of %+v: %w", m, err)
	}
	return &holder{process}, nil
}

// proc is the process's directory. It is there until end, also when the process has died.
func (h *holder) proc() string { return "/proc/" + strconv.Itoa(h.process.Pid) }

func (h *holder) end() {
	_ = h.process.Kill() // it may have been killed already
	_, _ = h.process.Wait()
}

func sysMappings(list []IDMap) []syscall.SysProcIDMap {
	all := make([]syscall.SysProcIDMap, len(list))
	for i, m := range list {
		all[i] = syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Length)}
	}
	return all
}

// WithUser calls f with a descriptor of a user namespace that is gone after the call, unless something that f makes refers to it.
func WithUser(m Mappings, f func(userns *os.File) error) error {
	return onThread(func() error {
		h, err := hold(0, m)
		if err != nil {
			return err
		}
		defer h.end()
		file, err := os.Open(h.proc() + "/ns/user")
		if err != nil {
			return fmt.Errorf("open user namespace: %w", err)
		}
		defer file.Close()
		return f(file)
	})
}

// become makes the calling thread, and no other of this process, the root of a user namespace as the host sees it: an ordinary
// user. It cannot be undone.
func become(m Mappings) error {
	uid, _ := root(m.UIDs)
	gid, _ := root(m.GIDs)
	const keep = math.MaxUint32
	// The functions of package syscall act on all threads.
	for _, call := range []struct {
		name   string
		number uintptr
		id     uint32
	}{{"setresgid", unix.SYS_SETRESGID, gid}, {"setresuid", unix.SYS_SETRESUID, uid}} {
		if _, _, errno := unix.RawSyscall(call.number, keep, uintptr(call.id), keep); errno != 0 {
			return fmt.Errorf("%s(%d) of a thread: %w", call.name, call.id, errno)
		}
	}
	return nil
}
