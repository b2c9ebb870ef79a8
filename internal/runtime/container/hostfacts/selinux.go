package hostfacts

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// SELinuxMode says whether containers are labelled.
type SELinuxMode string

// The modes. Auto, which is also the empty mode, labels where that can work: the kernel has SELinux, its policy knows containers, and
// lets this process start them. Enabled is an error where it cannot.
const (
	SELinuxAuto     SELinuxMode = "auto"
	SELinuxEnabled  SELinuxMode = "enabled"
	SELinuxDisabled SELinuxMode = "disabled"
)

// probeSELinux finds what labels are made of; nil: nothing is labelled, and why.
func probeSELinux(mode SELinuxMode, log *slog.Logger) (s *ocispec.SELinux, why string, err error) {
	switch mode {
	case SELinuxDisabled:
		return nil, "it is switched off (runtime.selinux)", nil
	case SELinuxAuto, SELinuxEnabled, "":
	default:
		return nil, "", fmt.Errorf("runtime.selinux: %q is none of auto, enabled and disabled: %w", mode, errdefs.ErrInvalidArgument)
	}
	if !selinux.Enabled() {
		why = "this host has no SELinux"
	} else if s, why, err = findLabels(); err != nil {
		return nil, "", err
	}
	switch {
	case why == "":
		return s, "", nil
	case mode == SELinuxEnabled:
		return nil, "", fmt.Errorf("runtime.selinux is enabled: %s: %w", why, errdefs.ErrFailedPrecondition)
	case selinux.Enabled():
		log.Warn("containers run without labels of SELinux", "why", why)
	}
	return nil, why, nil
}

// findLabels makes labels of what the policy says; why is not empty if they are of no use.
func findLabels() (s *ocispec.SELinux, why string, err error) {
	process, file, image := selinux.Contexts()
	s = &ocispec.SELinux{}
	for _, l := range []struct {
		label *ocispec.Label
		text  string
	}{{&s.Process, process}, {&s.File, file}, {&s.Image, image}} {
		if *l.label, err = ocispec.ParseLabel(l.text); err != nil {
			return nil, "", err
		}
		l.label.Level = sensitivity(l.label.Level)
	}
	if selinux.Known(s.Image.String()) != nil {
		s.Image = s.File
	}
	for _, l := range []ocispec.Label{s.Process, s.File} {
		if err := selinux.Known(l.String()); errdefs.IsInvalidArgument(err) {
			return nil, fmt.Sprintf("the policy that is loaded does not know the label %s: install one that knows containers (container-selinux)", l), nil
		} else if err != nil {
			return nil, "", err
		}
	}
	for _, n := range []int{1024, 256} { // what policies have
		l := s.Process
		l.Level += fmt.Sprintf(":c0,c%d", n-1)
		if s.Process.Level != "" && s.Categories == 0 && selinux.Known(l.String()) == nil {
			s.Categories = n
		}
	}
	may, err := selinux.MayBecome(s.Process.String())
	if err != nil {
		return nil, "", err
	}
	if !may && selinux.Enforcing() {
		own, err := selinux.Own()
		if err != nil {
			return nil, "", err
		}
		return nil, fmt.Sprintf("the policy does not let this process, which is %s, start containers, which are %s: give the programs monopod and monopod-executor the type container_runtime_exec_t",
			own, s.Process), nil
	}
	free := s.Process
	free.Type = "spc_t" // of container-selinux: a "super privileged container"
	if selinux.Known(free.String()) == nil {
		may, err := selinux.MayBecome(free.String())
		if err != nil {
			return nil, "", err
		}
		if may || !selinux.Enforcing() {
			s.Unconfined = free
		}
	}
	return s, "", nil
}

// sensitivity is the lower end of a range, without categories.
func sensitivity(level string) string {
	low, _, _ := strings.Cut(level, "-")
	s, _, _ := strings.Cut(low, ":")
	return s
}

// Labels are those of a container that is to be made.
func (f Facts) Labels(sb *sandbox.Record, cfg *cri.ContainerConfig) (ocispec.SELinuxLabels, error) {
	sc := cfg.GetLinux().GetSecurityContext()
	host := f.For(sb.Handler)
	labels := ocispec.ContainerLabels(sb.SELinux, sc, host)
	const field = "linux.security_context.selinux_options"
	if o := sc.GetSelinuxOptions(); host.SELinux != nil && labels == (ocispec.SELinuxLabels{}) && !sc.GetPrivileged() && o.GetUser()+o.GetRole()+o.GetType()+o.GetLevel() != "" {
		return labels, fmt.Errorf("%s: sandbox %s was made when labels were switched off, and has none: make a new one: %w", field, sb.ID, errdefs.ErrFailedPrecondition)
	}
	if labels == sb.SELinux {
		return labels, nil
	}
	for _, l := range []string{labels.Process, labels.Mount} {
		if l == "" {
			continue
		}
		if err := selinux.Known(l); err != nil {
			return labels, fmt.Errorf("%s: %w", field, err)
		}
	}
	return labels, nil
}
