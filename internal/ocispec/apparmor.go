package ocispec

import (
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AppArmorFor says which profile the container runs under, by its name; empty: none. A privileged container has none. Where no
// profile is named the default one is applied if the host has it: "equivalent to not specifying a profile", says CRI of its older
// field, which counts when the newer one is not set.
func AppArmorFor(sc *cri.LinuxContainerSecurityContext, host Host) (string, error) {
	if sc.GetPrivileged() {
		return "", nil
	}
	kind, name, err := apparmorOf("linux.security_context.", sc.GetApparmor(), sc.GetApparmorProfile())
	if err == nil && kind == cri.SecurityProfile_RuntimeDefault {
		name = host.AppArmorDefault
	}
	return name, err
}

// apparmorOf reads the two fields, the older of which counts when the newer is not set. Localhost means the profile of
// the name that is returned.
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

// checkAppArmor refuses a profile that this host cannot apply. The default one is asked for by the newer field only: the older
// one has the same value for it and for nothing at all. A sandbox has no process that it could be for.
func checkAppArmor(at string, profile *cri.SecurityProfile, older string, sandbox bool, host Host) error {
	kind, name, err := apparmorOf(at, profile, older)
	switch {
	case err != nil:
		return err
	case kind == cri.SecurityProfile_Localhost && !host.AppArmor:
		return unfitHost(at+"apparmor", "profile %q: this host has no AppArmor", name)
	case kind == cri.SecurityProfile_RuntimeDefault && profile != nil && !sandbox && !host.AppArmor:
		return unfitHost(at+"apparmor", "RuntimeDefault: this host has no AppArmor; leave the field out")
	case kind == cri.SecurityProfile_RuntimeDefault && profile != nil && !sandbox && host.AppArmorDefault == "":
		return unfitHost(at+"apparmor", "RuntimeDefault: the default profile could not be loaded: install apparmor_parser and restart Monopod")
	}
	return nil
}
