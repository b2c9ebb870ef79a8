package ocispec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SeccompKind is where a container's seccomp profile comes from.
type SeccompKind string

// The kinds.
const (
	SeccompUnconfined SeccompKind = "Unconfined"
	SeccompDefault    SeccompKind = "RuntimeDefault"
	SeccompFile       SeccompKind = "Localhost"
)

// SeccompFor says which profile the container gets; path is that of a file for SeccompFile. A privileged container is
// unconfined. No profile named at all means unconfined, as CRI says of its older field, seccomp_profile_path, which
// counts when the newer one is not set.
func SeccompFor(sc *cri.LinuxContainerSecurityContext) (kind SeccompKind, path string, err error) {
	profile, path, err := seccompOf("linux.security_context.", sc.GetSeccomp(), sc.GetSeccompProfilePath())
	switch {
	case err != nil:
		return "", "", err
	case sc.GetPrivileged(), profile == cri.SecurityProfile_Unconfined:
		return SeccompUnconfined, "", nil
	case profile == cri.SecurityProfile_RuntimeDefault:
		return SeccompDefault, "", nil
	default:
		return SeccompFile, path, nil
	}
}

// seccompOf reads the two fields; at is the name of the message that holds them.
func seccompOf(at string, profile *cri.SecurityProfile, older string) (cri.SecurityProfile_ProfileType, string, error) {
	if profile != nil {
		kind, ref, err := profileOf(at+"seccomp", profile)
		if err == nil && kind == cri.SecurityProfile_Localhost && !strings.HasPrefix(ref, "/") {
			err = invalid(at+"seccomp.localhost_ref", "%q is not an absolute path", ref)
		}
		return kind, ref, err
	}
	switch ref, local := strings.CutPrefix(older, "localhost/"); {
	case older == "", older == "unconfined":
		return cri.SecurityProfile_Unconfined, "", nil
	case older == "runtime/default", older == "docker/default":
		return cri.SecurityProfile_RuntimeDefault, "", nil
	case local && strings.HasPrefix(ref, "/"):
		return cri.SecurityProfile_Localhost, ref, nil
	case local:
		return 0, "", invalid(at+"seccomp_profile_path", "%q: %q is not an absolute path", older, ref)
	default:
		return 0, "", invalid(at+"seccomp_profile_path", "%q is none of runtime/default, unconfined and localhost/<absolute path>", older)
	}
}

// profileOf reads a SecurityProfile, seccomp's or AppArmor's.
func profileOf(field string, p *cri.SecurityProfile) (cri.SecurityProfile_ProfileType, string, error) {
	ref := p.GetLocalhostRef()
	kind := p.GetProfileType()
	_, known := cri.SecurityProfile_ProfileType_name[int32(kind)]
	switch local := kind == cri.SecurityProfile_Localhost; {
	case !known:
		return 0, "", invalid(field+".profile_type", "%d is none of RuntimeDefault (0), Unconfined (1) and Localhost (2)", kind)
	case local && ref == "":
		return 0, "", invalid(field+".localhost_ref", "empty, while profile_type is Localhost")
	case !local && ref != "":
		return 0, "", invalid(field+".localhost_ref", "%q is given, while profile_type is %s: it must be Localhost", ref, kind)
	}
	return kind, ref, nil
}

// LoadSeccomp reads a seccomp profile in the OCI form (runtime-spec, config-linux.md, seccomp) or in Docker's, as JSON. Fields that neither
// form knows are ignored. Docker's conditions (includes, excludes) are decided by the facts: without them, rules would silently be others.
func LoadSeccomp(data []byte, facts SeccompFacts) (*specs.LinuxSeccomp, error) {
	var profile specs.LinuxSeccomp
	if err := json.Unmarshal(data, &profile); err != nil {
		return nil, fmt.Errorf("seccomp profile: not JSON of the OCI form: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if err := resolveDocker(&profile, data, facts); err != nil {
		return nil, err
	}
	if !slices.Contains(seccompActions(), profile.DefaultAction) {
		return nil, badProfile("defaultAction %q is none of %v", profile.DefaultAction, seccompActions())
	}
	for _, arch := range profile.Architectures {
		if !strings.HasPrefix(string(arch), "SCMP_ARCH_") {
			return nil, badProfile("architectures: %q does not begin with SCMP_ARCH_", arch)
		}
	}
	return &profile, nil
}

func checkSyscallRule(i int, s specs.LinuxSyscall) error {
	if len(s.Names) == 0 || slices.Contains(s.Names, "") {
		return badProfile("syscalls[%d] names no system call, or an empty one", i)
	}
	if !slices.Contains(seccompActions(), s.Action) {
		return badProfile("syscalls[%d].action %q is none of %v", i, s.Action, seccompActions())
	}
	for _, arg := range s.Args {
		if arg.Index > 5 {
			return badProfile("syscalls[%d].args: index %d, a system call's arguments are 0 to 5", i, arg.Index)
		}
		if !slices.Contains(seccompOperators(), arg.Op) {
			return badProfile("syscalls[%d].args: op %q is none of %v", i, arg.Op, seccompOperators())
		}
	}
	return nil
}

func badProfile(format string, args ...any) error {
	return fmt.Errorf("seccomp profile: %s: %w", fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

func seccompActions() []specs.LinuxSeccompAction {
	return []specs.LinuxSeccompAction{specs.ActAllow, specs.ActErrno, specs.ActKill, specs.ActKillProcess, specs.ActKillThread,
		specs.ActLog, specs.ActNotify, specs.ActTrace, specs.ActTrap}
}

func seccompOperators() []specs.LinuxSeccompOperator {
	return []specs.LinuxSeccompOperator{specs.OpEqualTo, specs.OpGreaterEqual, specs.OpGreaterThan, specs.OpLessEqual,
		specs.OpLessThan, specs.OpMaskedEqual, specs.OpNotEqual}
}
