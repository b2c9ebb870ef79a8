package ocispec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
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
		linux.MaskedPaths = slices.Clone(sc.GetMaskedPaths())
		linux.ReadonlyPaths = slices.Clone(sc.GetReadonlyPaths())
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
			return fmt.Errorf("Namespaces.%s %q is not an absolute path: %w", kind, p, errdefs.ErrInternal)
		}
	}
	for _, m := range in.Mounts {
		if m.Mount == nil || m.Source == "" {
			return fmt.Errorf("mount %q has no source: %w", m.Mount.GetContainerPath(), errdefs.ErrInternal)
		}
	}
	return nil
}
