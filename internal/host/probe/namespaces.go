package probe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespace is a kind of namespace that containers live in.
type namespace struct {
	name  string // as in /proc/self/ns
	flag  uintptr
	limit string // the sysctl user.<limit> bounds their number
	// without is what goes without it; empty: nothing does.
	without string
}

var namespaces = []namespace{
	{"mnt", unix.CLONE_NEWNS, "max_mnt_namespaces", ""},
	{"net", unix.CLONE_NEWNET, "max_net_namespaces", ""},
	{"ipc", unix.CLONE_NEWIPC, "max_ipc_namespaces", ""},
	{"uts", unix.CLONE_NEWUTS, "max_uts_namespaces", ""},
	{"pid", unix.CLONE_NEWPID, "max_pid_namespaces", ""},
	{"cgroup", unix.CLONE_NEWCGROUP, "max_cgroup_namespaces", "containers see the host's cgroup paths"},
	{"user", unix.CLONE_NEWUSER, "max_user_namespaces", "pods with hostUsers: false do not start"},
}

// namespace makes one of the kind, with a process that ends at once.
func (sys system) namespace(ns namespace) Result {
	name := "namespace " + ns.name
	err := sys.clone(ns.flag)
	if err == nil {
		return ok(name, "yes")
	}
	f := bad(name, "cannot be made: %v", err)
	remedy := "use a kernel that has it"
	switch {
	case errors.Is(err, unix.ENOSPC):
		remedy = "raise the sysctl user." + ns.limit
	case errors.Is(err, unix.EPERM):
		remedy = "run as root with CAP_SYS_ADMIN"
		if _, serr := os.Stat(filepath.Join(sys.proc, "self/ns", ns.name)); serr == nil && sys.euid() == 0 {
			remedy += "; if this is a container, start it privileged"
		}
	}
	if ns.without != "" {
		return f.warn("%s: %s", ns.without, remedy)
	}
	return f.fail("%s", remedy)
}

// tryClone starts a process in new namespaces, which then fails to execute a program that does not exist. So the error
// tells the two apart: a program that is not there means that there was a process, in its namespaces, to look for it.
func tryClone(flags uintptr) error {
	const nowhere = "/proc/self/monopod-check"
	p, err := os.StartProcess(nowhere, []string{nowhere}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return errno
		}
		return err
	}
	_, err = p.Wait()
	return err
}
