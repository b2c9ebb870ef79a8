package node

import (
	"context"
	"errors"
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
	return role{name: "storage", open: s.open, run: s.run, close: s.close, remove: s.remove}
}

func (s *storageRole) log() *slog.Logger { return s.Log.With("role", "storage") }

// open has the volumes there that pods have, before any is started. It never fails.
func (s *storageRole) open(ctx context.Context) error {
	if err := hold.Forget(config.StorageDir(s.Config)); err != nil {
		s.log().ErrorContext(ctx, "block devices of volumes may be others than before the start of the machine", "error", err)
	}
	p, err := storage.New(storage.Config{Dir: config.StorageDir(s.Config), NodeName: s.Config.NodeName, Alone: true, Log: s.log()})
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
		told.Volumes, told.Copies = s.provisioner, s.provisioner.Copies()
	}
	return told
}

func (s *storageRole) run(ctx context.Context) error {
	if s.provisioner == nil || s.Config.Storage.Provisioner == config.Disabled || !await(ctx, s.after()) {
		return idle(ctx)
	}
	return s.provisioner.Run(ctx, s.kube())
}

func (s *storageRole) close() error {
	if s.provisioner != nil {
		s.provisioner.Close()
	}
	return nil
}

// remove takes volumes off the host, and leaves what is in them.
func (s *storageRole) remove(ctx context.Context) error {
	var errs []error
	for _, dir := range volumeDirs(s.Config) {
		p, err := storage.New(storage.Config{Dir: dir, NodeName: s.Config.NodeName, Log: s.log()})
		if err == nil {
			err = p.Detach(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// volumeDirs are the directories in which volumes of claims may be: that of the configuration, and the one that there was before somebody configured one.
func volumeDirs(c *v1alpha1.NodeConfiguration) []string {
	dir, first := config.StorageDir(c), *c
	first.Storage.Directory = ""
	if usual := config.StorageDir(&first); !same(usual, dir) {
		return []string{dir, usual}
	}
	return []string{dir}
}

// lockVolumes has the directories of volumes for this process alone.
func lockVolumes(c *v1alpha1.NodeConfiguration) (unlock func(), err error) {
	var held []*storage.Provisioner
	unlock = func() {
		for _, p := range held {
			p.Close()
		}
	}
	for _, dir := range volumeDirs(c) {
		p, err := storage.New(storage.Config{Dir: dir, NodeName: c.NodeName, Alone: true})
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, p)
	}
	return unlock, nil
}

// Volumes are the claims whose volumes are on the disk of a node with this configuration, by the directories that they are in.
func Volumes(c *v1alpha1.NodeConfiguration) (map[string][]string, error) {
	all := map[string][]string{}
	for _, dir := range volumeDirs(c) {
		claims, err := storage.Claims(dir, c.NodeName)
		if err != nil {
			return nil, err
		}
		if len(claims) > 0 {
			all[dir] = claims
		}
	}
	return all, nil
}
