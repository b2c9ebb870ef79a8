package ocispec

import (
	"path"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ValidateSandbox refuses by name what of a sandbox's configuration contradicts itself or cannot be honoured here.
// Sysctls, port mappings and DNS are checked by those who apply them.
func ValidateSandbox(sandbox *cri.PodSandboxConfig, host Host) error {
	linux, sc := sandbox.GetLinux(), sandbox.GetLinux().GetSecurityContext()
	const at = "linux.security_context."
	switch meta := sandbox.GetMetadata(); {
	case sandbox == nil:
		return invalid("config", "missing")
	case meta.GetName() == "":
		return invalid("metadata.name", "empty")
	case sandbox.GetWindows() != nil:
		return invalid("windows", "this is a Linux host")
	}
	if err := checkWeight("labels", sandbox.GetLabels()); err != nil {
		return err
	}
	if err := checkWeight("annotations", sandbox.GetAnnotations()); err != nil {
		return err
	}
	if err := checkNUL(sandbox); err != nil {
		return err
	}
	if _, err := CgroupParent(linux.GetCgroupParent()); err != nil {
		return err
	}
	if err := checkSandboxNamespaces(at+"namespace_options.", sc.GetNamespaceOptions()); err != nil {
		return err
	}
	if err := checkSandboxUserNamespace(at+"namespace_options.", sc.GetNamespaceOptions(), host); err != nil {
		return err
	}
	if err := checkHostname(sandbox); err != nil {
		return err
	}
	if err := checkSELinux(at+"selinux_options", sc.GetSelinuxOptions(), host); err != nil {
		return err
	}
	if err := checkUserSpec(UserSpec{UID: value(sc.GetRunAsUser()), GID: value(sc.GetRunAsGroup()),
		SupplementalGroups: sc.GetSupplementalGroups(), Policy: sc.GetSupplementalGroupsPolicy()}); err != nil {
		return err
	}
	if _, _, err := seccompOf(at, sc.GetSeccomp(), sc.GetSeccompProfilePath()); err != nil {
		return err
	}
	if err := checkAppArmor(at, sc.GetApparmor(), "", true, host); err != nil {
		return err
	}
	return ValidateSandboxResources("linux.", linux.GetOverhead(), linux.GetResources(), host)
}

// ValidateSandboxResources refuses by name what a pod's cgroup cannot be limited to; at is the name of the message.
func ValidateSandboxResources(at string, overhead, resources *cri.LinuxContainerResources, host Host) error {
	if err := checkResources(at+"overhead.", overhead, host); err != nil {
		return err
	}
	return checkResources(at+"resources.", resources, host)
}

// Validate refuses by name what of a container's configuration contradicts itself or its sandbox, or cannot be
// honoured here. It needs nothing resolved, so a runtime calls it before the first side effect. The image, the log path,
// CDI devices and the stop signal are checked by those who use them.
func Validate(sandbox *cri.PodSandboxConfig, container *cri.ContainerConfig, host Host) error {
	switch {
	case container == nil:
		return invalid("config", "missing")
	case container.GetMetadata().GetName() == "":
		return invalid("metadata.name", "empty")
	case container.GetWindows() != nil:
		return invalid("windows", "this is a Linux host")
	case container.GetWorkingDir() != "" && !path.IsAbs(container.GetWorkingDir()):
		return invalid("working_dir", "%q is not an absolute path", container.GetWorkingDir())
	}
	if err := checkWeight("labels", container.GetLabels()); err != nil {
		return err
	}
	if err := checkWeight("annotations", container.GetAnnotations()); err != nil {
		return err
	}
	if err := checkWeight("image.annotations", container.GetImage().GetAnnotations()); err != nil {
		return err
	}
	if err := checkNUL(container); err != nil {
		return err
	}
	for _, e := range container.GetEnvs() {
		if k := e.GetKey(); k == "" || strings.Contains(k, "=") {
			return invalid("envs", "%q: a name must not be empty nor contain =", k)
		}
	}
	for _, m := range container.GetMounts() {
		if err := checkMount(m, host); err != nil {
			return err
		}
		pod := sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
		if err := checkMountMappings("mounts["+m.GetContainerPath()+"].", m, pod); err != nil {
			return err
		}
	}
	for _, d := range container.GetDevices() {
		if err := checkDevice(d); err != nil {
			return err
		}
	}
	if err := checkResources("linux.resources.", container.GetLinux().GetResources(), host); err != nil {
		return err
	}
	return checkSecurity(sandbox, container.GetLinux().GetSecurityContext(), host)
}

func checkSecurity(sandbox *cri.PodSandboxConfig, sc *cri.LinuxContainerSecurityContext, host Host) error {
	const at = "linux.security_context."
	pod := sandbox.GetLinux().GetSecurityContext()
	if sc.GetPrivileged() && !pod.GetPrivileged() {
		return invalid(at+"privileged", "the container's sandbox is not privileged: set it in the sandbox's security context, too")
	}
	if err := checkContainerNamespaces(at+"namespace_options.", sc.GetNamespaceOptions(), pod.GetNamespaceOptions()); err != nil {
		return err
	}
	if err := checkUserSpec(UserSpecOf(sc, "")); err != nil {
		return err
	}
	if _, _, err := Capabilities(sc, nil); err != nil {
		return err
	}
	if _, _, err := SeccompFor(sc); err != nil {
		return err
	}
	if !sc.GetPrivileged() { // "MAY have no effect" on a privileged container
		if err := checkSELinux(at+"selinux_options", sc.GetSelinuxOptions(), host); err != nil {
			return err
		}
		if err := checkAppArmor(at, sc.GetApparmor(), sc.GetApparmorProfile(), false, host); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		field string
		paths []string
	}{{"masked_paths", sc.GetMaskedPaths()}, {"readonly_paths", sc.GetReadonlyPaths()}} {
		for _, p := range list.paths {
			if !path.IsAbs(p) {
				return invalid(at+list.field, "%q is not an absolute path", p)
			}
		}
	}
	return nil
}

func checkSandboxNamespaces(at string, o *cri.NamespaceOption) error {
	switch {
	case o.GetNetwork() != cri.NamespaceMode_POD && o.GetNetwork() != cri.NamespaceMode_NODE:
		return invalid(at+"network", "%s: a sandbox's network is POD or NODE", o.GetNetwork())
	case o.GetIpc() != cri.NamespaceMode_POD && o.GetIpc() != cri.NamespaceMode_NODE:
		return invalid(at+"ipc", "%s: a sandbox's IPC is POD or NODE", o.GetIpc())
	case o.GetPid() != cri.NamespaceMode_POD && o.GetPid() != cri.NamespaceMode_CONTAINER && o.GetPid() != cri.NamespaceMode_NODE:
		return invalid(at+"pid", "%s: a sandbox's PID namespace is POD, CONTAINER or NODE", o.GetPid())
	}
	return nil
}

// checkContainerNamespaces holds a container's options against its sandbox's. The namespaces of network and IPC are the
// sandbox's; a container that says POD, which is also what it says when it says nothing, gets what the sandbox has. Of PID namespaces
// the node's is for sandboxes that have it. A target is for pid TARGET only; with another mode it is without effect, everywhere.
func checkContainerNamespaces(at string, o, pod *cri.NamespaceOption) error {
	switch {
	case o.GetNetwork() != cri.NamespaceMode_POD && o.GetNetwork() != pod.GetNetwork():
		return invalid(at+"network", "%s, while the sandbox's is %s", o.GetNetwork(), pod.GetNetwork())
	case o.GetIpc() != cri.NamespaceMode_POD && o.GetIpc() != pod.GetIpc():
		return invalid(at+"ipc", "%s, while the sandbox's is %s", o.GetIpc(), pod.GetIpc())
	case o.GetPid() == cri.NamespaceMode_NODE && pod.GetPid() != cri.NamespaceMode_NODE:
		return invalid(at+"pid", "%s, while the sandbox's is %s", o.GetPid(), pod.GetPid())
	case o.GetPid() == cri.NamespaceMode_TARGET && o.GetTargetId() == "":
		return invalid(at+"target_id", "empty, while pid is TARGET")
	}
	if _, known := cri.NamespaceMode_name[int32(o.GetPid())]; !known {
		return invalid(at+"pid", "%d is no NamespaceMode", o.GetPid())
	}
	return checkContainerUserNamespace(at+"userns_options", o.GetUsernsOptions(), pod.GetUsernsOptions())
}

func value(v *cri.Int64Value) *int64 {
	if v == nil {
		return nil
	}
	return &v.Value
}
