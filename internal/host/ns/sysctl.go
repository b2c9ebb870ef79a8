package ns

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// CheckSysctls tells, without touching anything, whether every sysctl of the options belongs to a namespace that they
// ask for; else it fails with InvalidArgument and names the sysctl. That the kernel knows it is found out by Create.
func CheckSysctls(o Options) error {
	_, err := plan(o)
	return err
}

// setting is a sysctl to write.
type setting struct {
	name, path, value string
}

// plan turns the sysctls into settings, sorted by name so that a failure is the same one each time.
func plan(o Options) ([]setting, error) {
	var all []setting
	for _, name := range slices.Sorted(maps.Keys(o.Sysctls)) {
		path, err := sysctlPath(name)
		if err != nil {
			return nil, err
		}
		kind, ok := namespaceOf(path)
		if !ok {
			return nil, fmt.Errorf("sysctl %q: it belongs to no namespace of a pod (allowed are net.*, kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* and kernel.domainname): %w",
				name, errdefs.ErrInvalidArgument)
		}
		if !o.has(kind) {
			return nil, fmt.Errorf("sysctl %q: it would change the host, because the pod shares the host's %s namespace: %w", name, kind, errdefs.ErrInvalidArgument)
		}
		all = append(all, setting{name, path, o.Sysctls[name]})
	}
	return all, nil
}

// sysctlPath returns the path below /proc/sys. As in sysctl(8), the first separator decides what separates: in
// "net.ipv4.conf.eth0/1.forwarding" a slash stands for a dot, in "net/ipv4/conf/eth0.1/forwarding" a dot is a dot.
func sysctlPath(name string) (string, error) {
	path := name
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		path = strings.NewReplacer(".", "/", "/", ".").Replace(name)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return "", fmt.Errorf("sysctl %q: not a name of the form a.b.c: %w", name, errdefs.ErrInvalidArgument)
		}
	}
	return path, nil
}

// namespaceOf tells the namespace that a sysctl belongs to. It names what Kubernetes' sysctl documentation calls
// namespaced. Settings below net that are global after all do not exist, or cannot be written, in a new network namespace.
func namespaceOf(path string) (Kind, bool) {
	rest, inKernel := strings.CutPrefix(path, "kernel/")
	switch {
	case strings.HasPrefix(path, "net/"):
		return Network, true
	case strings.HasPrefix(path, "fs/mqueue/"):
		return IPC, true
	case inKernel && (rest == "sem" || strings.HasPrefix(rest, "shm") || strings.HasPrefix(rest, "msg")):
		return IPC, true
	case inKernel && rest == "domainname":
		return UTS, true
	}
	return "", false
}

// write sets the sysctl in the calling thread's namespaces, which are what /proc/sys shows to each thread.
func (s setting) write() error {
	f, err := os.OpenFile("/proc/sys/"+s.path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(s.value)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	switch {
	case err == nil:
		return nil
	case os.IsNotExist(err):
		return fmt.Errorf("sysctl %q: this kernel has none of that name in a pod's namespace: %w", s.name, errdefs.ErrInvalidArgument)
	default:
		return fmt.Errorf("sysctl %q = %q: %w", s.name, s.value, err)
	}
}
