package registry

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/image/faults"
)

// Classify gives errors of the registry client the class that callers decide by.
func Classify(err error) error {
	if errdefs.Resolve(err) != errdefs.ErrUnknown {
		return err
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("%w: %w", err, class)
	}
	return err
}

func classOf(err error) error {
	var status remoteerrors.ErrUnexpectedStatus
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization):
		return errdefs.ErrPermissionDenied
	case errors.As(err, &status):
		switch status.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return errdefs.ErrPermissionDenied
		case http.StatusNotFound:
			return errdefs.ErrNotFound
		}
		return errdefs.ErrUnavailable
	case errors.Is(err, digest.ErrDigestInvalidFormat), errors.Is(err, digest.ErrDigestInvalidLength), errors.Is(err, digest.ErrDigestUnsupported):
		return errdefs.ErrFailedPrecondition // what a registry names is no digest
	}
	return faults.ClassOf(err)
}
