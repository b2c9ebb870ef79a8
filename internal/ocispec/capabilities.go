package ocispec

import (
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultCapabilities are those of an ordinary container, the same in every container runtime.
func defaultCapabilities() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
}

// knownCapabilities are all of capabilities(7), up to Linux 5.9; none has been added since.
func knownCapabilities() []string {
	return []string{
		"CAP_AUDIT_CONTROL", "CAP_AUDIT_READ", "CAP_AUDIT_WRITE", "CAP_BLOCK_SUSPEND", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_IPC_LOCK", "CAP_IPC_OWNER",
		"CAP_KILL", "CAP_LEASE", "CAP_LINUX_IMMUTABLE", "CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE", "CAP_MKNOD", "CAP_NET_ADMIN",
		"CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_RAW", "CAP_PERFMON", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
		"CAP_SETUID", "CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_CHROOT", "CAP_SYS_MODULE", "CAP_SYS_NICE",
		"CAP_SYS_PACCT", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG",
		"CAP_WAKE_ALARM",
	}
}

const allCapabilities = "ALL"

// Capabilities works out a container's capability sets from the default ones. "ALL" is taken first, on either list, then single
// names are added, then single names are dropped. Names are taken with and without "CAP_", in upper and lower case.
// An ambient capability is added to all sets. missing are those that the container
// is to have while the host lacks them; sorted.
//
// The inheritable set is left empty but for ambient capabilities: otherwise, files with inheritable capabilities
// would give them to users other than root (CVE-2022-24769).
func Capabilities(sc *cri.LinuxContainerSecurityContext, host []string) (set *specs.LinuxCapabilities, missing []string, err error) {
	caps := sc.GetCapabilities()
	const at = "linux.security_context.capabilities."
	add, addAll, err := names(at+"add_capabilities", caps.GetAddCapabilities())
	if err != nil {
		return nil, nil, err
	}
	drop, dropAll, err := names(at+"drop_capabilities", caps.GetDropCapabilities())
	if err != nil {
		return nil, nil, err
	}
	ambient, ambientAll, err := names(at+"add_ambient_capabilities", caps.GetAddAmbientCapabilities())
	if err != nil {
		return nil, nil, err
	}
	if ambientAll {
		ambient = knownCapabilities()
	}

	wanted := defaultCapabilities()
	switch {
	case sc.GetPrivileged():
		// All that there are, whatever the lists say: "capabilities MAY have no effect".
		wanted, ambient = knownCapabilities(), nil
	default:
		if addAll {
			wanted = knownCapabilities()
		}
		if dropAll {
			wanted = nil
		}
		wanted = append(append(wanted, add...), ambient...)
		dropped := func(c string) bool { return slices.Contains(drop, c) }
		wanted, ambient = slices.DeleteFunc(wanted, dropped), slices.DeleteFunc(ambient, dropped)
	}
	lacking := func(c string) bool { return !slices.Contains(host, c) }
	for _, c := range wanted {
		if lacking(c) {
			missing = append(missing, c)
		}
	}
	wanted, ambient = sorted(slices.DeleteFunc(wanted, lacking)), sorted(slices.DeleteFunc(ambient, lacking))
	return &specs.LinuxCapabilities{
		Bounding:    wanted,
		Effective:   slices.Clone(wanted),
		Permitted:   slices.Clone(wanted),
		Inheritable: ambient,
		Ambient:     slices.Clone(ambient),
	}, sorted(missing), nil
}

// names brings a list's names to their full form and takes "ALL" out of it.
func names(field string, list []string) (full []string, all bool, err error) {
	for _, given := range list {
		name := strings.ToUpper(given)
		if name == allCapabilities || name == "CAP_"+allCapabilities {
			all = true
			continue
		}
		if !strings.HasPrefix(name, "CAP_") {
			name = "CAP_" + name
		}
		if !slices.Contains(knownCapabilities(), name) {
			return nil, false, invalid(field, "%q is no capability of capabilities(7)", given)
		}
		full = append(full, name)
	}
	return full, all, nil
}

func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
