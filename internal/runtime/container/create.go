package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/ident"
	"monopod.dev/monopod/internal/runtime/rollback"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/runtime/stored"
)

// createBound is how long a Create may take when its client has gone.
const createBound = 2 * time.Minute

// Create makes a container, up to where its program can be started, and returns its id. A Create of the same metadata and
// configuration in the same sandbox joins the one under way, or returns the container that is there; with another
// configuration it is errdefs.ErrAlreadyExists.
func (m *Manager) Create(ctx context.Context, sandboxID string, cfg *cri.ContainerConfig) (string, error) {
	name := sandboxID + "/" + Name(cfg.GetMetadata())
	return m.flight.Join(ctx, "create "+name, stored.Digest(cfg), createBound, func(ctx context.Context) (string, error) {
		sb, err := m.sandboxes.Get(sandboxID)
		if err != nil {
			return "", err
		}
		if !sb.Ready() {
			return "", notReady(sandboxID)
		}
		for _, rec := range m.InSandbox(sandboxID) {
			if Name(rec.Config().GetMetadata()) != Name(cfg.GetMetadata()) {
				continue
			}
			if proto.Equal(rec.Config(), cfg) {
				return rec.ID, nil
			}
			return "", fmt.Errorf("container %q of sandbox %s is there already as %s, with another configuration: remove it, or use another attempt number: %w",
				Name(cfg.GetMetadata()), sandboxID, rec.ID, errdefs.ErrAlreadyExists)
		}
		if err := ocispec.Validate(sb.Config(), cfg, m.cfg.Host.Spec); err != nil {
			return "", err
		}
		rec := Record{ID: ident.New(), SandboxID: sandboxID, Stored: stored.Proto[*cri.ContainerConfig]{Message: cfg}, BootID: m.cfg.BootID, ReservedAt: time.Now()}
		return rec.ID, m.flight.One(ctx, rec.ID, func() error { return m.create(ctx, rec, &sb) })
	})
}

func (m *Manager) create(ctx context.Context, rec Record, sb *sandbox.Record) (err error) {
	img, err := m.cfg.Images.Get(ctx, rec.Config().GetImage().GetImage())
	if err != nil {
		return err
	}
	rec.ImageID, rec.ImageRef = img.ID, imageRef(img)
	if rec.LogPath, err = logPath(sb.Config().GetLogDirectory(), rec.Config().GetLogPath()); err != nil {
		return err
	}
	if rec.StopSignal, err = stopSignal(rec.Config(), img.Config.StopSignal); err != nil {
		return err
	}
	if err := m.add(rec); err != nil {
		return err
	}
	var undo rollback.Stack
	defer func() { err = errors.Join(err, undo.Run(ctx)) }()
	// A container that cannot be undone now keeps its record, which nobody sees: the sandbox's removal, or recovery, tries again.
	undo.Add("the container", func(ctx context.Context) error {
		if err := m.erase(ctx, &rec); err != nil {
			return err
		}
		return m.forget(rec.ID)
	})
	// A sandbox that is stopped from here on finds the record, and waits for what becomes of it.
	if now, err := m.sandboxes.Get(sb.ID); err != nil || !now.Ready() {
		return notReady(sb.ID)
	}
	if err := failpoint.Hit("runtime/container-create/persisted"); err != nil {
		return err
	}
	if err := m.cfg.Images.Pin(ctx, img.ID, rec.ID); err != nil {
		return err
	}
	if err := m.build(ctx, &rec, sb, img); err != nil {
		return fmt.Errorf("container %s: %w", rec.Config().GetMetadata().GetName(), err)
	}
	if _, err := m.cfg.Executor.Create(ctx, protocol.CreateRequest{ID: rec.ID, Bundle: m.Bundle(rec.ID), LogPath: rec.LogPath,
		Stdin: rec.Config().GetStdin(), StdinOnce: rec.Config().GetStdinOnce()}); err != nil {
		return fmt.Errorf("container %s: %w", rec.Config().GetMetadata().GetName(), err)
	}
	if err := failpoint.Hit("runtime/container-create/created"); err != nil {
		return err
	}
	if _, err := m.modify(rec.ID, func(r *Record) bool {
		r.CreatedAt = time.Now()
		r.UID, r.GID, r.Groups = rec.UID, rec.GID, rec.Groups
		return true
	}); err != nil {
		return err
	}
	undo.Release()
	return nil
}

func notReady(sandboxID string) error {
	return fmt.Errorf("sandbox %s is not ready; containers need one that is: %w", sandboxID, errdefs.ErrFailedPrecondition)
}
