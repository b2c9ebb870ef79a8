package ocispec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Build makes the specification of a container. It validates its input first, as Validate does. The result shares
// nothing with the input but the seccomp profile.
//
// What is deliberately not in it: sysctls and the hostname (they are the sandbox's, set in its namespaces), rlimits
// (CRI has none; the container gets the executor's), hooks and annotations (CRI's annotations are the client's, and "SHOULD
// NOT influence runtime behaviour").
func Build(in Input) (*specs.Spec, error) {
	if err := Validate(in.Sandbox, in.Container, in.Host); err != nil {
		return nil, err
	}
	if err := checkResolved(in); err != nil {
		return nil, err
	}
	if err := checkMapped(in); err != nil {
		return nil, err
	}
	p, err := process(in)
	if err != nil {
		return nil, err
	}
	resources, err := Resources(in.Container.GetLinux().GetResources(), in.Host)
	if err != nil {
		return nil, err
	}
	sc := in.Container.GetLinux().GetSecurityContext()
	linux := &specs.Linux{
		CgroupsPath:       in.CgroupsPath,
		Namespaces:        namespaces(in),
		Resources:         resources,
		MountLabel:        in.SELinux.Mount,
		RootfsPropagation: rootfsPropagation(in.Mounts),
	}
	if uid, gid, ok := UserNamespace(in.Sandbox); ok {
		linux.UIDMappings, linux.GIDMappings = idMappings(uid), idMappings(gid)
	}
	linux.Devices, resources.Devices = devices(in)
	if !sc.GetPrivileged() {
		linux.MaskedPaths, linux.ReadonlyPaths = hiddenPaths(sc, in.Host)
		linux.Seccomp = in.Seccomp
	}
	return &specs.Spec{
		Version: specs.Version,
		Process: p,
		Root:    &specs.Root{Path: in.RootFS, Readonly: sc.GetReadonlyRootfs()},
		Mounts:  mounts(in),
		Linux:   linux,
	}, nil
}

// hiddenPaths are what a container does not see of the kernel, or sees and cannot write to. What the client says holds, and empty lists
// say that there are none: it is how kubelets ask for procMount Unmasked. Where the host is set to it, a client that names none at all gets the
// usual ones.
func hiddenPaths(sc *cri.LinuxContainerSecurityContext, host Host) (masked, readonly []string) {
	masked, readonly = slices.Clone(sc.GetMaskedPaths()), slices.Clone(sc.GetReadonlyPaths())
	if host.DefaultMaskedPaths && len(masked)+len(readonly) == 0 {
		return defaultMaskedPaths(), defaultReadonlyPaths()
	}
	return masked, readonly
}

// The usual ones are those that kubelets send, and that container engines without Kubernetes have.
func defaultMaskedPaths() []string {
	return []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"}
}

func defaultReadonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// namespaces lists those that the container does not share with the host.
func namespaces(in Input) []specs.LinuxNamespace {
	all := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	join := func(kind specs.LinuxNamespaceType, path string) {
		if path != "" {
			all = append(all, specs.LinuxNamespace{Type: kind, Path: path})
		}
	}
	if !in.Namespaces.HostPID {
		all = append(all, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: in.Namespaces.PID})
	}
	join(specs.UserNamespace, in.Namespaces.User)
	join(specs.NetworkNamespace, in.Namespaces.Network)
	join(specs.IPCNamespace, in.Namespaces.IPC)
	join(specs.UTSNamespace, in.Namespaces.UTS)
	// On v2 the container sees its own cgroup as the root of the hierarchy; a privileged one may want to manage the host's.
	if in.Host.CgroupV2 && !in.Container.GetLinux().GetSecurityContext().GetPrivileged() {
		all = append(all, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return all
}

// checkResolved finds mistakes of the caller: they are no refusal of the request.
func checkResolved(in Input) error {
	switch {
	case in.RootFS == "" || in.RootFS[0] != '/':
		return fmt.Errorf("RootFS %q is not an absolute path: %w", in.RootFS, errdefs.ErrInternal)
	case !strings.HasPrefix(in.CgroupsPath, "/") && strings.Count(in.CgroupsPath, ":") != 2:
		return fmt.Errorf("CgroupsPath %q is neither an absolute path nor a scope: %w", in.CgroupsPath, errdefs.ErrInternal)
	case in.Namespaces.HostPID && in.Namespaces.PID != "":
		return fmt.Errorf("Namespaces.PID %q is given together with HostPID: %w", in.Namespaces.PID, errdefs.ErrInternal)
	case len(in.Mounts) != len(in.Container.GetMounts()):
		return fmt.Errorf("%d of %d mounts are resolved: %w", len(in.Mounts), len(in.Container.GetMounts()), errdefs.ErrInternal)
	}
	for kind, p := range map[string]string{"Network": in.Namespaces.Network, "IPC": in.Namespaces.IPC, "UTS": in.Namespaces.UTS,
		"User": in.Namespaces.User, "PID": in.Namespaces.PID} {
		if p != "" && !strings.HasPrefix(p, "/") {
			return fmt.Errorf("namespace %s: %q is not an absolute path: %w", kind, p, errdefs.ErrInternal)
		}
	}
	for _, m := range in.Mounts {
		if m.Mount == nil || m.Source == "" {
			return fmt.Errorf("mount %q has no source: %w", m.Mount.GetContainerPath(), errdefs.ErrInternal)
		}
	}
	return nil
}
