package ocispec

import (
	"errors"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Capabilities works out a container's capability sets. missing are those that it is to have but the host lacks, sorted.
func Capabilities(sc *cri.LinuxContainerSecurityContext, host []string) (set *specs.LinuxCapabilities, missing []string, err error) {
	return nil, nil, errors.New("not yet")
}
