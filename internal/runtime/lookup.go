package runtime

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// idLength is the length of a full id; anything shorter is a prefix, which people type and crictl passes on.
const idLength = 64

// sandboxID completes an id. Who names a sandbox claims it: it is not undone any more as one that its client has given up.
func (s *Server) sandboxID(id string) (string, error) {
	full, err := complete("sandbox", id, func(yield func(string)) {
		for _, rec := range s.sandboxes.List() {
			yield(rec.ID)
		}
	})
	if err == nil {
		s.sandboxes.Claim(full)
	}
	return full, err
}

// containerID completes an id, and claims the container as sandboxID does.
func (s *Server) containerID(id string) (string, error) {
	full, err := complete("container", id, func(yield func(string)) {
		for _, rec := range s.containers.List() {
			yield(rec.ID)
		}
	})
	if err == nil {
		s.containers.Claim(full)
	}
	return full, err
}

// complete finds the one id that begins with the given one.
func complete(kind, id string, each func(func(string))) (string, error) {
	if id == "" {
		return "", fmt.Errorf("no %s id is given: %w", kind, errdefs.ErrInvalidArgument)
	}
	if len(id) >= idLength {
		return id, nil
	}
	var found []string
	each(func(full string) {
		if strings.HasPrefix(full, id) {
			found = append(found, full)
		}
	})
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s %q: %w", kind, id, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%s id %q is not unique: %d begin with it: %w", kind, id, len(found), errdefs.ErrInvalidArgument)
}

// selects says whether labels have all that a selector asks for.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// hasState says whether a filter without a state, or with this one, lets an object through.
func hasSandboxState(f *cri.PodSandboxFilter, state cri.PodSandboxState) bool {
	return f.GetState() == nil || f.GetState().GetState() == state
}

func hasContainerState(f *cri.ContainerFilter, state cri.ContainerState) bool {
	return f.GetState() == nil || f.GetState().GetState() == state
}
