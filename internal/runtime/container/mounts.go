package container

import (
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/ocispec"
)

// resolveMounts finds what each mount's host path comes down to. A missing path is an error (CRI Mount.host_path), and so
// is one from which mounts cannot be propagated as asked for: the container would wait in vain for them.
func resolveMounts(mounts []*cri.Mount) ([]ocispec.ResolvedMount, error) {
	var all []ocispec.ResolvedMount
	for _, mt := range mounts {
		if image := mt.GetImage().GetImage(); image != "" {
			return nil, fmt.Errorf("mount at %s: image %q: mounts of images are not supported yet: %w", mt.GetContainerPath(), image, errdefs.ErrNotImplemented)
		}
		source, err := filepath.EvalSymlinks(mt.GetHostPath())
		if err != nil {
			return nil, fmt.Errorf("mount at %s: host_path %s: %w: %w", mt.GetContainerPath(), mt.GetHostPath(), err, errdefs.ErrInvalidArgument)
		}
		if err := checkPropagation(mt, source); err != nil {
			return nil, err
		}
		all = append(all, ocispec.ResolvedMount{Mount: mt, Source: source})
	}
	return all, nil
}

func checkPropagation(mt *cri.Mount, source string) error {
	wanted := mt.GetPropagation()
	if wanted == cri.MountPropagation_PROPAGATION_PRIVATE {
		return nil
	}
	p, err := mount.PropagationOf(source)
	if err != nil {
		return err
	}
	if p.Shared || p.Slave && wanted == cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER {
		return nil
	}
	return fmt.Errorf("mount at %s: propagation %s: host_path %s is on a mount that does not share (mount --make-rshared changes that): %w",
		mt.GetContainerPath(), wanted, source, errdefs.ErrFailedPrecondition)
}
