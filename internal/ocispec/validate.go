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
	if parent := linux.GetCgroupParent(); parent != "" && (!path.IsAbs(parent) || path.Clean(parent) != strings.TrimRight(parent, "/")) {
		return invalid("linux.cgroup_parent", "%q is not an absolute cgroupfs path, as /pods/pod1 is", parent)
	}
	if err := checkSandboxNamespaces(at+"namespace_options.", sc.GetNamespaceOptions()); err != nil {
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
	if err := checkAppArmor(at, sc.GetApparmor(), "", host); err != nil {
		return err
	}
	if err := checkResources("linux.overhead.", linux.GetOverhead(), host); err != nil {
		return err
	}
	return checkResources("linux.resources.", linux.GetResources(), host)
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
	for _, e := range container.GetEnvs() {
		if k := e.GetKey(); k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(string(e.GetValue()), "\x00") {
			return invalid("envs", "%q: a name must not be empty nor contain =, and neither name nor value a NUL", k)
		}
	}
	for _, m := range container.GetMounts() {
		if err := checkMount(m, host); err != nil {
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
		if err := checkAppArmor(at, sc.GetApparmor(), sc.GetApparmorProfile(), host); err != nil {
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
	case o.GetTargetId() != "":
		return invalid(at+"target_id", "%q: a sandbox has no target", o.GetTargetId())
	}
	return checkUserNamespace(at+"userns_options", o.GetUsernsOptions())
}

// checkContainerNamespaces holds a container's options against its sandbox's. The namespaces of network and IPC are the
// sandbox's; a container that says POD, which is also what it says when it says nothing, gets what the sandbox has.
func checkContainerNamespaces(at string, o, pod *cri.NamespaceOption) error {
	switch {
	case o.GetNetwork() != cri.NamespaceMode_POD && o.GetNetwork() != pod.GetNetwork():
		return invalid(at+"network", "%s, while the sandbox's is %s", o.GetNetwork(), pod.GetNetwork())
	case o.GetIpc() != cri.NamespaceMode_POD && o.GetIpc() != pod.GetIpc():
		return invalid(at+"ipc", "%s, while the sandbox's is %s", o.GetIpc(), pod.GetIpc())
	case o.GetPid() == cri.NamespaceMode_TARGET && o.GetTargetId() == "":
		return invalid(at+"target_id", "empty, while pid is TARGET")
	case o.GetPid() != cri.NamespaceMode_TARGET && o.GetTargetId() != "":
		return invalid(at+"target_id", "%q is given, while pid is %s: it must be TARGET", o.GetTargetId(), o.GetPid())
	}
	if _, known := cri.NamespaceMode_name[int32(o.GetPid())]; !known {
		return invalid(at+"pid", "%d is no NamespaceMode", o.GetPid())
	}
	return checkUserNamespace(at+"userns_options", o.GetUsernsOptions())
}

// checkUserNamespace takes what older kubelets send (nothing) and newer ones for an ordinary pod (NODE).
func checkUserNamespace(field string, u *cri.UserNamespace) error {
	switch mode := u.GetMode(); {
	case u == nil:
		return nil
	case mode == cri.NamespaceMode_NODE && len(u.Uids)+len(u.Gids) > 0:
		return invalid(field, "id mappings are given, while mode is NODE")
	case mode == cri.NamespaceMode_NODE:
		return nil
	case mode == cri.NamespaceMode_POD:
		return notImplemented(field, "user namespaces are not supported yet")
	default:
		return invalid(field+".mode", "%s: it is POD or NODE", mode)
	}
}

func checkSELinux(field string, o *cri.SELinuxOption, host Host) error {
	switch {
	case o.GetUser() == "" && o.GetRole() == "" && o.GetType() == "" && o.GetLevel() == "":
		return nil
	case !host.SELinux:
		return unfitHost(field, "%s:%s:%s:%s: this host has no SELinux", o.User, o.Role, o.Type, o.Level)
	default:
		return notImplemented(field, "labels of SELinux are not supported yet")
	}
}

// apparmorOf reads the two fields, the older of which counts when the newer is not set. Localhost means a profile of
// the name that is returned; the others, that there is none: Monopod brings no default profile.
func apparmorOf(at string, profile *cri.SecurityProfile, older string) (cri.SecurityProfile_ProfileType, string, error) {
	if profile != nil {
		kind, ref, err := profileOf(at+"apparmor", profile)
		return kind, strings.TrimPrefix(ref, "localhost/"), err
	}
	switch name, local := strings.CutPrefix(older, "localhost/"); {
	case older == "", older == "runtime/default":
		return cri.SecurityProfile_RuntimeDefault, "", nil
	case older == "unconfined":
		return cri.SecurityProfile_Unconfined, "", nil
	case local && name != "":
		return cri.SecurityProfile_Localhost, name, nil
	default:
		return 0, "", invalid(at+"apparmor_profile", "%q is none of runtime/default, unconfined and localhost/<name>", older)
	}
}

func checkAppArmor(at string, profile *cri.SecurityProfile, older string, host Host) error {
	kind, name, err := apparmorOf(at, profile, older)
	if err == nil && kind == cri.SecurityProfile_Localhost && !host.AppArmor {
		err = unfitHost(at+"apparmor", "profile %q: this host has no AppArmor", name)
	}
	return err
}

func value(v *cri.Int64Value) *int64 {
	if v == nil {
		return nil
	}
	return &v.Value
}
