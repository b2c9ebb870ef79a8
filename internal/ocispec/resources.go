package ocispec

import (
	"errors"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resources turns CRI resources into the specification's. Zero values mean "not specified", as CRI says; devices are not
// part of it. It serves CreateContainer, through Build, and UpdateContainerResources.
func Resources(r *cri.LinuxContainerResources, host Host) (*specs.LinuxResources, error) {
	return nil, errors.New("not yet")
}
