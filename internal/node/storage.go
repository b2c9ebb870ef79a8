package node

import (
	"context"
	"log/slog"

	"k8s.io/client-go/rest"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/node/status"
	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/hold"
)

// storageRole makes volumes for claims. A node works without it: then claims of its classes wait, and the status says why.
type storageRole struct {
	*process
	kube  func() *rest.Config
	after func() <-chan struct{}

	provisioner *storage.Provisioner // nil: there is none
	problem     error
}

func (s *storageRole) role() role {
	return role{name: "storage", open: s.open, run: s.run, remove: s.remove}
}

func (s *storageRole) log() *slog.Logger { return s.Log.With("role", "storage") }

// open has the volumes there that pods have, before any is started. It never fails.
func (s *storageRole) open(ctx context.Context) error {
	if err := hold.Forget(config.StorageDir(s.Config)); err != nil {
		s.log().ErrorContext(ctx, "block devices of volumes may be others than before the start of the machine", "error", err)
	}
	p, err := storage.New(storage.Config{Dir: config.StorageDir(s.Config), NodeName: s.Config.NodeName, Log: s.log()})
	if err != nil {
		s.problem = err
		s.log().ErrorContext(ctx, "volumes are not made for claims", "error", err)
		return nil
	}
	p.Attach(ctx)
	s.provisioner = p
	return nil
}

// told is what the administration socket tells of; it is for when the role is open.
func (s *storageRole) told() *status.Storage {
	told := &status.Storage{Problem: s.problem, Directory: config.StorageDir(s.Config)}
	if s.provisioner != nil {
		told.Volumes = s.provisioner
	}
	return told
}

func (s *storageRole) run(ctx context.Context) error {
	if s.provisioner == nil || s.Config.Storage.Provisioner == config.Disabled || !await(ctx, s.after()) {
		return idle(ctx)
	}
	return s.provisioner.Run(ctx, s.kube())
}

// remove takes volumes off the host, and leaves what is in them.
func (s *storageRole) remove(ctx context.Context) error {
	p, err := storage.New(storage.Config{Dir: config.StorageDir(s.Config), NodeName: s.Config.NodeName, Log: s.log()})
	if err != nil {
		return err
	}
	return p.Detach(ctx)
}

// Volumes are the volumes of claims that are on the disk of a node with this configuration, as people know them: by their claims. A directory that is not known as a
// volume is one by its name.
func Volumes(c *v1alpha1.NodeConfiguration) ([]string, error) {
	return storage.Claims(config.StorageDir(c))
}
