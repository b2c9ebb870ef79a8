package ocispec

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// The two refusals. field is the proto's name of the field, below PodSandboxConfig or ContainerConfig.

func invalid(field, format string, args ...any) error {
	return refuse(errdefs.ErrInvalidArgument, field, format, args)
}

func unfitHost(field, format string, args ...any) error {
	return refuse(errdefs.ErrFailedPrecondition, field, format, args)
}

func refuse(class error, field, format string, args []any) error {
	return fmt.Errorf("%s: %s: %w", field, fmt.Sprintf(format, args...), class)
}
