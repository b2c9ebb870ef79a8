package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/rollback"
	"monopod.dev/monopod/internal/kit/wait"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// createBound is how long a Create may take when its client has gone.
const createBound = 2 * time.Minute

// Create makes a container, up to where its program can be started, and returns its id. A Create of the same metadata and
// configuration in the same sandbox joins the one under way, or returns the container that is there; with another
// configuration it is errdefs.ErrAlreadyExists. What nobody waits for any more when it is made is undone after
// Config.AbandonAfter, if it is not claimed. privileged says that the client calls the sandbox privileged by now: kubelets do for the first
// privileged container that is added to a pod that runs, as kubectl debug --profile=sysadmin adds one.
func (m *Manager) Create(ctx context.Context, sandboxID string, cfg *cri.ContainerConfig, privileged bool) (string, error) {
	return m.recs.Make(ctx, abandon.Work{
		Key: "create " + sandboxID + "/" + Name(cfg.GetMetadata()), Variant: records.Digest(cfg), Bound: createBound,
		Do: func(ctx context.Context) (string, error) { return m.find(ctx, sandboxID, cfg, privileged) },
	})
}

// find returns the container of a configuration, after making it if there was none.
func (m *Manager) find(ctx context.Context, sandboxID string, cfg *cri.ContainerConfig, privileged bool) (string, error) {
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
		if undoing := m.recs.Undoing(rec.ID); undoing != nil {
			select {
			case <-undoing:
				return m.find(ctx, sandboxID, cfg, privileged)
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		if proto.Equal(rec.Config(), cfg) {
			return rec.ID, nil
		}
		return "", fmt.Errorf("container %q of sandbox %s is there already as %s, with another configuration: remove it, or use another attempt number: %w",
			Name(cfg.GetMetadata()), sandboxID, rec.ID, errdefs.ErrAlreadyExists)
	}
	if err := ocispec.Validate(promised(sb.Config(), privileged), cfg, m.HostOf(sb.Handler)); err != nil {
		return "", err
	}
	labels, err := m.labels(&sb, cfg)
	if err != nil {
		return "", err
	}
	if o := pidOptions(cfg); o.GetPid() == cri.NamespaceMode_TARGET {
		if _, err := m.target(sandboxID, o.GetTargetId()); err != nil {
			return "", err
		}
	}
	rec := Record{ID: randomid.New(), SandboxID: sandboxID, Stored: records.Proto[*cri.ContainerConfig]{Message: cfg}, BootID: m.cfg.BootID, ReservedAt: time.Now(), SELinux: labels}
	return rec.ID, m.ops.Do(ctx, rec.ID, func() error { return m.create(ctx, rec, &sb) })
}

// promised is a sandbox's configuration that says privileged, if it is to. Nothing of the sandbox itself depends on it: the container's own
// configuration counts.
func promised(cfg *cri.PodSandboxConfig, privileged bool) *cri.PodSandboxConfig {
	if sc := cfg.GetLinux().GetSecurityContext(); !privileged || sc == nil || sc.GetPrivileged() {
		return cfg
	}
	cfg = proto.CloneOf(cfg)
	cfg.Linux.SecurityContext.Privileged = true
	return cfg
}

func (m *Manager) create(ctx context.Context, rec Record, sb *sandbox.Record) (err error) {
	if err := m.cfg.DB.Room(); err != nil {
		return err
	}
	img, err := m.cfg.Images.Get(ctx, rec.Config().GetImage().GetImage())
	if err != nil {
		return err
	}
	rec.ImageID, rec.ImageRef = img.ID, imageRef(img)
	if rec.ImageVolumes, err = m.imageVolumes(ctx, rec.Config().GetMounts()); err != nil {
		return err
	}
	if rec.LogPath, err = logPath(sb.Config().GetLogDirectory(), rec.Config().GetLogPath()); err != nil {
		return err
	}
	var wrong error
	if rec.StopSignal, wrong, err = stopSignal(rec.Config(), img.Config.StopSignal); err != nil {
		return err
	}
	if wrong != nil {
		m.cfg.Log.WarnContext(ctx, "the image's stop signal is none: the container is stopped by SIGTERM", "image", rec.ImageRef, "signal", img.Config.StopSignal, "error", wrong)
	}
	if err := m.recs.Add(rec); err != nil {
		return err
	}
	var undo rollback.Stack
	defer func() { err = errors.Join(err, undo.Run(ctx)) }()
	// A container that cannot be undone now keeps its record, which nobody sees: the sandbox's removal, or recovery, tries again.
	undo.Add("the container", func(ctx context.Context) error {
		if err := m.erase(ctx, &rec); err != nil {
			return err
		}
		return m.recs.Forget(rec.ID)
	})
	// A sandbox that is stopped from here on finds the record, and waits for what becomes of it.
	if now, err := m.sandboxes.Get(sb.ID); err != nil || !now.Ready() {
		return notReady(sb.ID)
	}
	if err := failpoint.Hit("runtime/container-create/persisted"); err != nil {
		return err
	}
	if err := m.pinAndBuild(ctx, &rec, sb, img); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/container-create/built"); err != nil {
		return err
	}
	req := protocol.CreateRequest{ID: rec.ID, Bundle: m.Bundle(rec.ID),
		Stdin: rec.Config().GetStdin(), StdinOnce: rec.Config().GetStdinOnce()}
	if req.Runtime, err = m.runtimeOf(sb.Handler); err != nil {
		return err
	}
	if rec.LogPath != "" {
		if req.LogPath, err = prepareLog(sb, rec.Config().GetLogPath()); err != nil {
			return fmt.Errorf("container %s: %w", rec.Config().GetMetadata().GetName(), err)
		}
	}
	req.LogMaxBytes, req.LogMaxFiles = m.cfg.LogRotation.of(rec.LogPath)
	if _, err := m.cfg.Executor.Create(ctx, req); err != nil {
		return fmt.Errorf("container %s: %w", rec.Config().GetMetadata().GetName(), m.withHooks(rec.Config(), err))
	}
	if err := failpoint.Hit("runtime/container-create/created"); err != nil {
		return err
	}
	if err := m.releaseVolumes(rec.ID); err != nil {
		return err
	}
	if _, err := m.recs.Modify(rec.ID, func(r *Record) bool {
		r.CreatedAt = time.Now()
		r.UID, r.GID, r.Groups = rec.UID, rec.GID, rec.Groups
		return true
	}); err != nil {
		return err
	}
	undo.Release()
	return failpoint.Hit("runtime/container-create/stored")
}

// pinAndBuild pins what the container is made of, and makes its root file system and bundle. The pin of the image waits for the disk,
// and is taken meanwhile: it fails when the image has gone, and what was mounted is compared with what was pinned.
func (m *Manager) pinAndBuild(ctx context.Context, rec *Record, sb *sandbox.Record, img store.Image) error {
	for _, image := range rec.images() {
		if image == img.ID {
			continue
		}
		if err := m.cfg.Images.Pin(ctx, image, rec.ID); err != nil {
			return err
		}
	}
	lower, err := m.layers(ctx, img.ID)
	if err != nil {
		return err
	}
	id, name := rec.ID, rec.Config().GetMetadata().GetName()
	err = wait.All(func() error {
		if err := m.cfg.Images.Pin(ctx, img.ID, id); err != nil {
			return err
		}
		return failpoint.Hit("runtime/container-create/pinned")
	}, func() error {
		if err := m.build(ctx, rec, sb, img, lower); err != nil {
			return fmt.Errorf("container %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if now, err := m.cfg.Images.Layers(ctx, img.ID); err != nil || !slices.Equal(now, lower) {
		return errors.Join(err, fmt.Errorf("image %s was replaced while the container %s was made: create it again: %w", img.ID, name, errdefs.ErrUnavailable))
	}
	return nil
}

func notReady(sandboxID string) error {
	return fmt.Errorf("sandbox %s is not ready; containers need one that is: %w", sandboxID, errdefs.ErrFailedPrecondition)
}
