// Package life makes containers, starts them, changes what they may use, and makes their records, the executor and the host agree after a
// restart. How they end is package end's.
//
// Every method is safe for concurrent use. Create, Start, Update and Remove of one container happen one after another. Facts are stored before
// they are published.
package life

import (
	"context"
	"log/slog"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/container/cdi"
	"monopod.dev/monopod/internal/runtime/container/end"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
	"monopod.dev/monopod/internal/runtime/container/pidns"
	"monopod.dev/monopod/internal/runtime/container/rootfs"
	"monopod.dev/monopod/internal/runtime/container/spec"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/state"
)

// Executor is what the life of containers needs of the executor's client.
type Executor interface {
	// Create makes a container up to where its program can be started. After an error nothing of it is left.
	Create(ctx context.Context, req protocol.CreateRequest) (protocol.CreateResponse, error)
	// Start lets its program run.
	Start(ctx context.Context, id ids.ContainerID) (protocol.StartResponse, error)
	// State tells what is known of a container; of one that is not is errdefs.ErrNotFound.
	State(ctx context.Context, id ids.ContainerID) (protocol.ContainerState, error)
	// List tells it of all, the pods' inits among them.
	List(ctx context.Context) ([]protocol.ContainerState, error)
	// Events tells every state, and then what changes, until ctx ends. After each reconnection it tells every state again.
	Events(ctx context.Context, f func(protocol.Event)) error
	// ReopenLog has a container's log written into a new file.
	ReopenLog(ctx context.Context, id ids.ContainerID) error
	// Update gives a container other resources, all or none. After errdefs.ErrUnavailable it is not known whether it has.
	Update(ctx context.Context, req protocol.UpdateRequest) error
}

// Images is what the life of containers needs of the image store.
type Images interface {
	// Get finds an image by a name or its id, else errdefs.ErrNotFound.
	Get(ctx context.Context, ref string) (store.Image, error)
	// Layers are the directories of an image's layers, the topmost first.
	Layers(ctx context.Context, imageID ids.ImageID) ([]string, error)
	// Pin keeps an image for a user, who is a container, until it is unpinned. It is idempotent; one that has gone is errdefs.ErrNotFound.
	Pin(ctx context.Context, imageID ids.ImageID, user ids.ContainerID) error
	// Unpin lets go of it.
	Unpin(ctx context.Context, imageID ids.ImageID, user ids.ContainerID) error
	// Pins maps each user to the images that it has pinned.
	Pins(ctx context.Context) (map[ids.ContainerID][]ids.ImageID, error)
}

// LogRotation limits the logs of containers that are created from now on. The zero value does not: then somebody else
// rotates them.
type LogRotation struct {
	MaxBytes int64
	MaxFiles int // kept of each log, the present one included
}

// Of returns the limits of a log at that path.
func (r LogRotation) Of(path string) (maxBytes int64, maxFiles int) {
	if path == "" || r.MaxBytes == 0 {
		return 0, 0
	}
	return r.MaxBytes, r.MaxFiles
}

// Config is what a Manager works with.
type Config struct {
	Containers *container.Records
	Sandboxes  *sandbox.Records
	// SandboxLife looks after the pods' inits.
	SandboxLife *sandbox.Manager
	Ends        *end.Ender
	Folders     container.Folders
	Bin         *tree.Bin // for layers of containers that are gone
	RootFS      *rootfs.Mounter
	Spec        *spec.Maker
	CDI         *cdi.Injector
	PIDs        *pidns.Finder
	Host        hostfacts.Facts
	Executor    Executor
	Images      Images
	Cgroups     *cgroup.Host
	DB          *state.DB
	BootID      string
	LogRotation LogRotation
	Log         *slog.Logger
}

// Manager looks after the life of all containers.
type Manager struct{ cfg Config }

// New returns a Manager. Call Recover before anything else.
func New(cfg Config) *Manager { return &Manager{cfg: cfg} }
