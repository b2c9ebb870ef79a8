package runtime

import (
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/randomid"
)

// sandboxID completes an id. Who names a sandbox claims it: it is not undone any more as one that its client has given up.
func (s *rooms) sandboxID(id string) (ids.SandboxID, error) {
	full, err := complete("sandbox", id, func() (found []ids.SandboxID) {
		for _, rec := range s.sandboxes.Select(&cri.PodSandboxFilter{Id: id}) {
			found = append(found, rec.ID)
		}
		return found
	})
	if err == nil {
		s.sandboxes.Claim(full)
	}
	return full, err
}

// containerID completes an id, and claims the container as sandboxID does.
func (s *rooms) containerID(id string) (ids.ContainerID, error) {
	full, err := complete("container", id, func() (found []ids.ContainerID) {
		for _, rec := range s.containers.Select(&cri.ContainerFilter{Id: id}) {
			found = append(found, rec.ID)
		}
		return found
	})
	if err == nil {
		s.containers.Claim(full)
	}
	return full, err
}

// complete finds the one id that begins with the given one, among those that do.
func complete[ID ~string](kind, id string, find func() []ID) (ID, error) {
	if id == "" {
		return "", fmt.Errorf("no %s id is given: %w", kind, errdefs.ErrInvalidArgument)
	}
	if len(id) >= randomid.Length {
		return ID(id), nil
	}
	found := find()
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s %q: %w", kind, id, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%s id %q is not unique: %d begin with it: %w", kind, id, len(found), errdefs.ErrInvalidArgument)
}
