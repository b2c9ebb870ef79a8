package ns

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
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
	byDefault         bool
}

// plan turns the sysctls into settings, sorted by name so that a failure is the same one each time.
func plan(o Options) ([]setting, error) {
	var all []setting
	named := map[string]bool{}
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
		all, named[path] = append(all, setting{name: name, path: path, value: o.Sysctls[name]}), true
	}
	for _, name := range slices.Sorted(maps.Keys(o.Defaults)) {
		path, err := sysctlPath(name)
		if err != nil {
			return nil, err
		}
		if kind, ok := namespaceOf(path); ok && o.has(kind) && !named[path] {
			all = append(all, setting{name: name, path: path, value: o.Defaults[name], byDefault: true})
		}
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

// SetOfInterfaces sets those of the options' sysctls that belong to one network interface (net.ipv4.conf.eth0.rp_filter), in the network namespace
// that Create has pinned at the directory. Create leaves them out: they are there when the interface is.
func SetOfInterfaces(dir string, o Options) error {
	all, err := plan(o)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s setting) bool { return !s.ofInterface() })
	if len(all) == 0 {
		return nil
	}
	return Run(Path(dir, Network), Network, func() error { return set(all, o.User, o.Procfs) })
}

// ofInterface says that the sysctl is that of an interface which a new network namespace does not have.
func (s setting) ofInterface() bool {
	parts := strings.Split(s.path, "/")
	return len(parts) > 4 && parts[0] == "net" && (parts[2] == "conf" || parts[2] == "neigh") && !slices.Contains([]string{"all", "default", "lo"}, parts[3])
}

// set writes the sysctls in the calling thread's namespaces. Where those belong to a user namespace, kernels differ in whom they
// let change what: some ask for the host's root, and some for the root of the namespace. What the former may not is
// tried as the latter, which the thread then stays.
func set(sysctls []setting, user *Mappings, in *Procfs) error {
	if len(sysctls) == 0 {
		return nil
	}
	root, err := in.open()
	if err != nil {
		return err
	}
	defer unix.Close(root)
	var refused []setting
	for _, s := range sysctls {
		if user != nil && s.path == "net/ipv4/ping_group_range" {
			// The kernel reads it with the eyes of the writer, who is the host's.
			value, err := groupRange(s.value, user.GIDs)
			if err != nil {
				return fmt.Errorf("sysctl %q = %q: %w", s.name, s.value, err)
			}
			s.value = value
		}
		err := s.write(root)
		if user != nil && (errors.Is(err, fs.ErrPermission)) {
			refused = append(refused, s)
			continue
		}
		if err != nil {
			return err
		}
	}
	if len(refused) == 0 {
		return nil
	}
	if err := become(*user); err != nil {
		return err
	}
	for _, s := range refused {
		if err := s.write(root); err != nil {
			return err
		}
	}
	return nil
}

// groupRange translates a range of groups of a user namespace into one of the host, cut off where the mapping of its first group ends. A
// range that ends before it begins means nobody, everywhere.
func groupRange(value string, gids []IDMap) (string, error) {
	var first, last uint32
	if n, err := fmt.Sscanf(value, "%d %d", &first, &last); n != 2 || err != nil {
		return "", fmt.Errorf("it is not two group ids: %w", errdefs.ErrInvalidArgument)
	}
	if last < first {
		return value, nil
	}
	for _, m := range gids {
		if first >= m.ContainerID && first-m.ContainerID < m.Length {
			end := min(last-m.ContainerID, m.Length-1)
			return fmt.Sprintf("%d %d", m.HostID+first-m.ContainerID, m.HostID+end), nil
		}
	}
	return "", fmt.Errorf("group %d is not mapped into the pod's user namespace: %w", first, errdefs.ErrInvalidArgument)
}

// write sets the sysctl in the calling thread's namespaces. root is from Procfs.open.
func (s setting) write(root int) error {
	err := writeAt(root, s.path, s.value)
	switch {
	case err == nil, s.byDefault && os.IsNotExist(err):
		return nil
	case os.IsNotExist(err) && s.ofInterface():
		return fmt.Errorf("sysctl %q: the pod has no such interface, or this kernel none of that name: %w", s.name, errdefs.ErrInvalidArgument)
	case os.IsNotExist(err):
		return fmt.Errorf("sysctl %q: this kernel has none of that name in a pod's namespace: %w", s.name, errdefs.ErrInvalidArgument)
	default:
		return fmt.Errorf("sysctl %q = %q: %w", s.name, s.value, err)
	}
}
