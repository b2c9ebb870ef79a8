package ocispec

import (
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ValidateSandbox refuses by name what of a sandbox's configuration contradicts itself or cannot be honoured here.
func ValidateSandbox(sandbox *cri.PodSandboxConfig, host Host) error { return errors.New("not yet") }

// Validate refuses by name what of a container's configuration contradicts itself or its sandbox, or cannot be
// honoured here. It needs nothing resolved, so a runtime calls it before the first side effect.
func Validate(sandbox *cri.PodSandboxConfig, container *cri.ContainerConfig, host Host) error {
	return errors.New("not yet")
}
