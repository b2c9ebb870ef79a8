package podspec

import (
	"path"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/pods"
)

func namespaces(pod *v1.Pod) *cri.NamespaceOption {
	ns := &cri.NamespaceOption{
		Network: cri.NamespaceMode_POD, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD,
	}
	if pod.Spec.HostNetwork {
		ns.Network = cri.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		ns.Ipc = cri.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		ns.Pid = cri.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		ns.Pid = cri.NamespaceMode_POD
	}
	return ns
}

func sandboxSecurity(pod *v1.Pod) *cri.LinuxSandboxSecurityContext {
	out := &cri.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod),
		Privileged:       anyPrivileged(pod),
		Seccomp:          &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
	}
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return out
	}
	if out.RunAsUser = int64Value(sc.RunAsUser); sc.RunAsUser != nil {
		// CRI has no group without a user, and the users of a pod's images are its containers': no process of the sandbox runs as either.
		out.RunAsGroup = int64Value(sc.RunAsGroup)
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(sc)
	out.SelinuxOptions = selinux(sc.SELinuxOptions)
	return out
}

func anyPrivileged(pod *v1.Pod) bool {
	for _, c := range pods.Containers(&pod.Spec) {
		if pods.Privileged(c) {
			return true
		}
	}
	return false
}

// maskedPaths are what a container shall not see of the kernel: the default list of the container runtimes.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
}

// readonlyPaths are what it may see and not write.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func containerSecurity(pod *v1.Pod, c *v1.Container) *cri.LinuxContainerSecurityContext {
	out := &cri.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod),
		MaskedPaths:      maskedPaths(),
		ReadonlyPaths:    readonlyPaths(),
		Seccomp:          &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined},
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		out.RunAsUser, out.RunAsGroup = int64Value(sc.RunAsUser), int64Value(sc.RunAsGroup)
		out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(sc)
		out.SelinuxOptions = selinux(sc.SELinuxOptions)
		if sc.SeccompProfile != nil {
			out.Seccomp = seccomp(sc.SeccompProfile)
		}
		out.Apparmor = apparmor(sc.AppArmorProfile)
	}
	sc := c.SecurityContext
	if sc == nil {
		return out
	}
	out.Privileged = isTrue(sc.Privileged)
	out.ReadonlyRootfs = isTrue(sc.ReadOnlyRootFilesystem)
	out.NoNewPrivs = sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation
	if sc.RunAsUser != nil {
		out.RunAsUser = int64Value(sc.RunAsUser)
	}
	if sc.RunAsGroup != nil {
		out.RunAsGroup = int64Value(sc.RunAsGroup)
	}
	if sc.SELinuxOptions != nil {
		out.SelinuxOptions = selinux(sc.SELinuxOptions)
	}
	if sc.SeccompProfile != nil {
		out.Seccomp = seccomp(sc.SeccompProfile)
	}
	if sc.AppArmorProfile != nil {
		out.Apparmor = apparmor(sc.AppArmorProfile)
	}
	if caps := sc.Capabilities; caps != nil {
		out.Capabilities = &cri.Capability{}
		for _, c := range caps.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(c))
		}
		for _, c := range caps.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(c))
		}
	}
	if out.Privileged || sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = nil, nil
	}
	return out
}

// giveGroupAUser names the image's user beside a group that the pod sets without one: CRI refuses a group alone, and Kubernetes takes it. An
// image that has no user runs as root.
func giveGroupAUser(sc *cri.LinuxContainerSecurityContext, image *cri.Image) {
	switch {
	case sc.RunAsGroup == nil || sc.RunAsUser != nil:
	case image.GetUid() == nil && image.GetUsername() != "":
		sc.RunAsUsername = image.GetUsername()
	default:
		sc.RunAsUser = &cri.Int64Value{Value: image.GetUid().GetValue()}
	}
}

// NonRoot says that the container must not run as user 0.
func NonRoot(pod *v1.Pod, c *v1.Container) bool {
	if c.SecurityContext != nil && c.SecurityContext.RunAsNonRoot != nil {
		return *c.SecurityContext.RunAsNonRoot
	}
	return pod.Spec.SecurityContext != nil && isTrue(pod.Spec.SecurityContext.RunAsNonRoot)
}

// RunAsUser is the user that the specification sets, or nil where the image decides.
func RunAsUser(pod *v1.Pod, c *v1.Container) *int64 {
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		return c.SecurityContext.RunAsUser
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.RunAsUser
	}
	return nil
}

func groups(sc *v1.PodSecurityContext) ([]int64, cri.SupplementalGroupsPolicy) {
	gids := append([]int64(nil), sc.SupplementalGroups...)
	if sc.FSGroup != nil {
		gids = append(gids, *sc.FSGroup)
	}
	if p := sc.SupplementalGroupsPolicy; p != nil && *p == v1.SupplementalGroupsPolicyStrict {
		return gids, cri.SupplementalGroupsPolicy_Strict
	}
	return gids, cri.SupplementalGroupsPolicy_Merge
}

func seccomp(p *v1.SeccompProfile) *cri.SecurityProfile {
	switch p.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	case v1.SeccompProfileTypeLocalhost:
		out := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost}
		if p.LocalhostProfile != nil {
			out.LocalhostRef = path.Join(seccompDir, *p.LocalhostProfile)
		}
		return out
	default:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	}
}

// seccompDir is what the API's paths of seccomp profiles are relative to: the kubelet's own, where tools put them.
const seccompDir = "/var/lib/kubelet/seccomp"

func apparmor(p *v1.AppArmorProfile) *cri.SecurityProfile {
	if p == nil {
		return nil
	}
	switch p.Type {
	case v1.AppArmorProfileTypeLocalhost:
		out := &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost}
		if p.LocalhostProfile != nil {
			out.LocalhostRef = *p.LocalhostProfile
		}
		return out
	case v1.AppArmorProfileTypeUnconfined:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	default:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	}
}

func selinux(o *v1.SELinuxOptions) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(v *int64) *cri.Int64Value {
	if v == nil {
		return nil
	}
	return &cri.Int64Value{Value: *v}
}

func isTrue(b *bool) bool { return b != nil && *b }
