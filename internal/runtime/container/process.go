package container

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/ocispec"
)

// Process returns what a further process in a running container is to be: the container's own, with another command.
func (m *Manager) Process(id string, command []string, terminal bool) (*specs.Process, error) {
	rec, err := m.Get(id)
	if err != nil {
		return nil, err
	}
	if rec.State() != cri.ContainerState_CONTAINER_RUNNING {
		return nil, fmt.Errorf("container %s is %s; a command needs a running one: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	raw, err := os.ReadFile(filepath.Join(m.Bundle(id), "config.json"))
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, fmt.Errorf("bundle of container %s: %w", id, err)
	}
	if spec.Process == nil {
		return nil, fmt.Errorf("bundle of container %s has no process: %w", id, errdefs.ErrInternal)
	}
	return ocispec.ExecProcess(spec.Process, command, terminal)
}

// Attachable says whether a client may attach to a container, and whether the container has a stdin to write to.
func (m *Manager) Attachable(id string, terminal bool) (stdin bool, err error) {
	rec, err := m.Get(id)
	if err != nil {
		return false, err
	}
	if rec.State() != cri.ContainerState_CONTAINER_RUNNING {
		return false, fmt.Errorf("container %s is %s; attaching needs a running one: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	if rec.Config().GetTty() != terminal {
		return false, fmt.Errorf("tty is %t, but that of container %s is %t; they must be the same: %w", terminal, id, rec.Config().GetTty(), errdefs.ErrInvalidArgument)
	}
	return rec.Config().GetStdin(), nil
}
