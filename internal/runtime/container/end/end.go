// Package end stops and removes containers, with all that the executor and the host hold of them.
//
// Every method is safe for concurrent use. Stop waits for nobody, so that one with a shorter grace overtakes a longer one.
package end

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/container/cdi"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// Executor is what the end of containers needs of the executor's client.
type Executor interface {
	// Kill sends a signal to a container's first process, or to all of it.
	Kill(ctx context.Context, req protocol.KillRequest) error
	// Delete removes what is left of a container that has ended, or was never started; of one that runs it is errdefs.ErrFailedPrecondition.
	Delete(ctx context.Context, id ids.ContainerID) error
	// State tells what is known of a container.
	State(ctx context.Context, id ids.ContainerID) (protocol.ContainerState, error)
	// Events tells every state, and then what changes, until ctx ends, or the executor goes.
	Events(ctx context.Context, f func(protocol.Event)) error
}

// Images is what the end of containers needs of the image store.
type Images interface {
	// Unpin lets go of an image that a user has pinned. One that it has not is errdefs.ErrNotFound.
	Unpin(ctx context.Context, imageID ids.ImageID, user ids.ContainerID) error
}

// Config is what an Ender works with.
type Config struct {
	Containers *container.Records
	Sandboxes  *sandbox.Records
	Folders    container.Folders
	Bin        *tree.Bin // for layers of containers that are gone
	CDI        *cdi.Injector
	Executor   Executor
	Images     Images
	Cgroups    *cgroup.Host
	// KillBound is how long a call waits for processes to end after SIGKILL; 0 is ten seconds.
	KillBound time.Duration
	Log       *slog.Logger
}

// Ender ends containers.
type Ender struct{ cfg Config }

// New returns an Ender.
func New(cfg Config) *Ender {
	cfg.KillBound = cmp.Or(cfg.KillBound, defaultKillBound)
	return &Ender{cfg: cfg}
}

// UndoAbandoned removes the containers that clients have given up, until ctx ends.
func (m *Ender) UndoAbandoned(ctx context.Context) error {
	return m.cfg.Containers.UndoAbandoned(ctx, m.undoAbandoned)
}

func (m *Ender) undoAbandoned(ctx context.Context, id ids.ContainerID) error {
	if rec, err := m.cfg.Containers.Get(id); err == nil && rec.State() != cri.ContainerState_CONTAINER_CREATED {
		return abandon.ErrInUse // somebody has started it
	}
	return m.Remove(ctx, id)
}

// End kills and deletes what the executor holds under an id, whatever is known of that, and removes its cgroup, if given, with what
// runs in it: the executor may have lost it. One that is gone is no error.
func (m *Ender) End(ctx context.Context, id ids.ContainerID, cgroup string) error {
	if err := m.end(ctx, id); err != nil || cgroup == "" {
		return err
	}
	return m.dropCgroup(cgroup)
}

// end kills and deletes a container of the executor.
func (m *Ender) end(ctx context.Context, id ids.ContainerID) error {
	err := m.cfg.Executor.Kill(ctx, protocol.KillRequest{ID: id, Signal: int(unix.SIGKILL), All: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	// Deleting is refused until the kernel has ended the processes; the executor tells when that is.
	for {
		err := m.cfg.Executor.Delete(ctx, id)
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if !errdefs.IsFailedPrecondition(err) {
			return err
		}
		if err := m.awaitExit(ctx, id); err != nil {
			return err
		}
	}
}

// awaitExit waits until the executor tells that a container has exited.
func (m *Ender) awaitExit(ctx context.Context, id ids.ContainerID) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.KillBound)
	defer cancel()
	seen := false
	err := m.cfg.Executor.Events(ctx, func(e protocol.Event) {
		if e.Deleted == id || e.Container != nil && e.Container.ID == id && e.Container.Phase == protocol.Exited {
			seen = true
			cancel()
		}
	})
	if seen {
		return nil
	}
	return fmt.Errorf("container %s did not end: %w", id, err)
}
