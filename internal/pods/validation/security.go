package validation

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

const (
	maxSysctlName = 253
	// maxProfileName is the longest name of an AppArmor profile, which may be a path.
	maxProfileName = 4095
)

// sysctlName is a sysctl with dots or slashes between its segments.
var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

func validatePodSecurity(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	sc := spec.SecurityContext
	if sc == nil {
		return nil
	}
	errs := validateIDs(sc.RunAsUser, sc.RunAsGroup, at)
	for i, gid := range sc.SupplementalGroups {
		for _, msg := range validation.IsValidGroupID(gid) {
			errs = append(errs, field.Invalid(at.Child("supplementalGroups").Index(i), gid, msg))
		}
	}
	if sc.SupplementalGroupsPolicy != nil {
		errs = append(errs, oneOf(*sc.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"),
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	}
	if sc.FSGroup != nil {
		for _, msg := range validation.IsValidGroupID(*sc.FSGroup) {
			errs = append(errs, field.Invalid(at.Child("fsGroup"), *sc.FSGroup, msg))
		}
	}
	if p := sc.FSGroupChangePolicy; p != nil {
		errs = append(errs, oneOf(*p, at.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	}
	if p := sc.SELinuxChangePolicy; p != nil {
		errs = append(errs, oneOf(*p, at.Child("seLinuxChangePolicy"), corev1.SELinuxChangePolicyRecursive, corev1.SELinuxChangePolicyMountOption)...)
	}
	errs = append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	return append(errs, validateSysctls(spec, at.Child("sysctls"))...)
}

// validateHostUsers: to a namespace of the host a pod whose users are not the host's has hardly any rights, so the API lets nobody ask for both.
func validateHostUsers(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if pods.HostUsers(spec) {
		return nil
	}
	var errs field.ErrorList
	for _, host := range []struct {
		field  string
		shared bool
	}{{"hostNetwork", spec.HostNetwork}, {"hostPID", spec.HostPID}, {"hostIPC", spec.HostIPC}} {
		if host.shared {
			errs = append(errs, field.Forbidden(at.Child(host.field), "when `hostUsers` is false"))
		}
	}
	return errs
}

func validateContainerSecurity(sc *corev1.SecurityContext, hostUsers bool, at *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := validateIDs(sc.RunAsUser, sc.RunAsGroup, at)
	if p := sc.ProcMount; p != nil {
		errs = append(errs, oneOf(*p, at.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		if hostUsers && *p == corev1.UnmaskedProcMount {
			errs = append(errs, field.Invalid(at.Child("procMount"), *p, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return errs
	}
	escalation := at.Child("allowPrivilegeEscalation")
	if sc.Privileged != nil && *sc.Privileged {
		errs = append(errs, field.Invalid(escalation, false, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	if sc.Capabilities != nil && slices.ContainsFunc(sc.Capabilities.Add, grantsSysAdmin) {
		errs = append(errs, field.Invalid(escalation, false, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
	}
	return errs
}

func grantsSysAdmin(c corev1.Capability) bool {
	return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_") == "SYS_ADMIN"
}

func validateIDs(user, group *int64, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if user != nil {
		for _, msg := range validation.IsValidUserID(*user) {
			errs = append(errs, field.Invalid(at.Child("runAsUser"), *user, msg))
		}
	}
	if group != nil {
		for _, msg := range validation.IsValidGroupID(*group) {
			errs = append(errs, field.Invalid(at.Child("runAsGroup"), *group, msg))
		}
	}
	return errs
}

func validateSeccomp(p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(p.Type, at.Child("type"),
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	if p.Type != corev1.SeccompProfileTypeLocalhost {
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "can only be set when seccomp type is Localhost"))
		}
		return errs
	}
	switch {
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		errs = append(errs, field.Required(local, "must be set when seccomp type is Localhost"))
	case path.IsAbs(*p.LocalhostProfile):
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "must be a relative path"))
	case hasBackstep(*p.LocalhostProfile):
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "must not contain '..'"))
	}
	return errs
}

// UsableAppArmor says whether a profile is one that a pod may have.
func UsableAppArmor(p *corev1.AppArmorProfile) bool {
	return len(validateAppArmor(p, field.NewPath(""))) == 0
}

func validateAppArmor(p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(p.Type, at.Child("type"),
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch {
	case p.Type != corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
		}
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		errs = append(errs, field.Required(local, "must be set when AppArmor type is Localhost"))
	case len(*p.LocalhostProfile) > maxProfileName:
		errs = append(errs, field.TooLong(local, *p.LocalhostProfile, maxProfileName))
	case strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile:
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "must not be padded with whitespace"))
	}
	return errs
}

func validateSysctls(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, s := range spec.SecurityContext.Sysctls {
		at := at.Index(i).Child("name")
		name := strings.ReplaceAll(s.Name, "/", ".")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(s.Name) > maxSysctlName || !sysctlName.MatchString(s.Name):
			errs = append(errs, field.Invalid(at, s.Name, "must be the name of a sysctl, at most 253 characters, such as net.core.somaxconn"))
		case seen.Has(name):
			errs = append(errs, field.Duplicate(at, s.Name))
		// A sysctl of a namespace that the pod shares with the host would change the host.
		case spec.HostNetwork && strings.HasPrefix(name, "net."):
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when `hostNetwork` is true"))
		case spec.HostIPC && (strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") ||
			strings.HasPrefix(name, "fs.mqueue.") || name == "kernel.sem"):
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when `hostIPC` is true"))
		}
		seen.Insert(name)
	}
	return errs
}
