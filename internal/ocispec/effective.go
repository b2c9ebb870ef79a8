package ocispec

import cri "k8s.io/cri-api/pkg/apis/runtime/v1"

// Effective is what a container's confinement comes to on this host: where the host lacks something, it is clamped rather than
// refused, and told. The resources are told by EffectiveResources. Resource limits of the process (rlimits) are no part of CRI:
// a container has those of the executor.
type Effective struct {
	// Capabilities are the bounding set; MissingCapabilities those that the container was to have and that the host lacks.
	Capabilities        []string `json:"capabilities"`
	MissingCapabilities []string `json:"missingCapabilities,omitempty"`
	OOMScoreAdj         int      `json:"oomScoreAdj"`
	// Seccomp is Unconfined, RuntimeDefault or the path of a file, AppArmor unconfined or the name of a profile.
	Seccomp  string `json:"seccomp"`
	AppArmor string `json:"apparmor"`
	// SELinux are the labels; empty: there are none.
	SELinux SELinuxLabels `json:"selinux,omitzero"`
}

// EffectiveOf says what is in force for a container whose configuration has been validated; resources are those of now.
func EffectiveOf(container *cri.ContainerConfig, resources *cri.LinuxContainerResources, host Host) (Effective, error) {
	sc := container.GetLinux().GetSecurityContext()
	caps, missing, err := Capabilities(sc, host.Capabilities)
	if err != nil {
		return Effective{}, err
	}
	kind, file, err := SeccompFor(sc)
	if err != nil {
		return Effective{}, err
	}
	profile, err := AppArmorFor(sc, host)
	if err != nil {
		return Effective{}, err
	}
	e := Effective{Capabilities: caps.Bounding, MissingCapabilities: missing, OOMScoreAdj: OOMScoreAdj(resources, host), Seccomp: string(kind), AppArmor: profile}
	if kind == SeccompFile {
		e.Seccomp = file
	}
	if profile == "" {
		e.AppArmor = "unconfined"
	}
	return e, nil
}
