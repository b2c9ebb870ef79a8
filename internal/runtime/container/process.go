package container

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
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
	process, err := m.process(id)
	if err != nil {
		return nil, fmt.Errorf("bundle of container %s: %w", id, err)
	}
	process.OOMScoreAdj = new(ocispec.OOMScoreAdj(rec.Resources(), m.cfg.Host.Spec)) // an update may have changed it
	return ocispec.ExecProcess(process, command, terminal)
}

// process reads the container's own process from its bundle. It comes early in a specification of which the greater part is the
// seccomp profile, so the rest is neither read nor parsed.
func (m *Manager) process(id string) (*specs.Process, error) {
	f, err := os.Open(filepath.Join(m.Bundle(id), "config.json"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	if _, err := d.Token(); err != nil { // the opening brace
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "process" {
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return nil, err
			}
			continue
		}
		var p *specs.Process
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		if p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("it has no process: %w", errdefs.ErrInternal)
}

// endBound is how long a container whose output has ended may take to end.
const endBound = time.Second

// Ends says of a container whose output has ended, which is so a moment before its exit is known, whether it ends, or goes on without.
func (m *Manager) Ends(ctx context.Context, id string) bool {
	e := m.entry(id)
	if !m.recs.Has(id) || e == nil {
		return true
	}
	over := time.NewTimer(endBound)
	defer over.Stop()
	select {
	case <-e.exited:
		return true
	case <-over.C:
	case <-ctx.Done():
		return false
	}
	// It has ended, perhaps, and its event is late.
	s, err := m.cfg.Executor.State(ctx, id)
	return err == nil && s.Phase == protocol.Exited && m.observe(s) == nil
}

// Attachable says whether a client may attach to a container, whether the container has a stdin to write to, and whether the attachment outlasts
// the client's. A client without a terminal may attach to a container that has one: that is kubectl run -it whose input is none, as in a pipeline.
func (m *Manager) Attachable(id string, terminal bool) (stdin, outlasts bool, err error) {
	rec, err := m.Get(id)
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
