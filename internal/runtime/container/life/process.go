package life

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container/spec"
)

// Process returns what a further process in a running container is to be: the container's own, with another command.
func (m *Manager) Process(id ids.ContainerID, command []string, terminal bool) (*specs.Process, error) {
	rec, err := m.cfg.Containers.Get(id)
	if err != nil {
		return nil, err
	}
	if rec.State() != cri.ContainerState_CONTAINER_RUNNING {
		return nil, fmt.Errorf("container %s is %s; a command needs a running one: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	process, err := spec.Process(m.cfg.Folders.Bundle(id))
	if err != nil {
		return nil, fmt.Errorf("bundle of container %s: %w", id, err)
	}
	process.OOMScoreAdj = new(ocispec.OOMScoreAdj(rec.Resources(), m.cfg.Host.Spec)) // an update may have changed it
	return ocispec.ExecProcess(process, command, terminal)
}

// endBound is how long a container whose output has ended may take to end.
const endBound = time.Second

// Ends says of a container whose output has ended, which is so a moment before its exit is known, whether it ends, or goes on without.
func (m *Manager) Ends(ctx context.Context, id ids.ContainerID) bool {
	e := m.cfg.Containers.Ending(id)
	if !m.cfg.Containers.Has(id) || e == nil {
		return true
	}
	over := time.NewTimer(endBound)
	defer over.Stop()
	select {
	case <-e.Exited():
		return true
	case <-over.C:
	case <-ctx.Done():
		return false
	}
	// It has ended, perhaps, and its event is late.
	s, err := m.cfg.Executor.State(ctx, id)
	return err == nil && s.Phase == protocol.Exited && m.cfg.Containers.Observe(s) == nil
}

// Attachable says whether a client may attach to a container, whether the container has a stdin to write to, and whether the attachment outlasts
// the client's. A client without a terminal may attach to a container that has one: that is kubectl run -it whose input is none, as in a pipeline.
func (m *Manager) Attachable(id ids.ContainerID, terminal bool) (stdin, outlasts bool, err error) {
	rec, err := m.cfg.Containers.Get(id)
	if err != nil {
		return false, false, err
	}
	if rec.State() != cri.ContainerState_CONTAINER_RUNNING {
		return false, false, fmt.Errorf("container %s is %s; attaching needs a running one: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	c := rec.Config()
	if terminal && !c.GetTty() {
		return false, false, fmt.Errorf("tty is true, but container %s has no terminal: attach without one: %w", id, errdefs.ErrInvalidArgument)
	}
	// What has been typed is all that there will be, and a terminal's end is none for the program: what that prints is still wanted.
	return c.GetStdin(), c.GetTty() && !terminal && c.GetStdinOnce(), nil
}
