package life

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
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/rollback"
	"monopod.dev/monopod/internal/kit/wait"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/container/pidns"
	"monopod.dev/monopod/internal/runtime/container/spec"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// createBound is how long a Create may take when its client has gone.
const createBound = 2 * time.Minute

// Create makes a container, up to where its program can be started, and returns its id. A Create of the same metadata and
// configuration in the same sandbox joins the one under way, or returns the container that is there; with another
// configuration it is errdefs.ErrAlreadyExists. What nobody waits for any more when it is made is undone after
// container.RecordsConfig.AbandonAfter, if it is not claimed. privileged says that the client calls the sandbox privileged by now: kubelets do for the first
// privileged container that is added to a pod that runs, as kubectl debug --profile=sysadmin adds one.
func (m *Manager) Create(ctx context.Context, sandboxID ids.SandboxID, cfg *cri.ContainerConfig, privileged bool) (ids.ContainerID, error) {
	return m.cfg.Containers.Make(ctx, abandon.Work[ids.ContainerID]{
		Key: "create " + string(sandboxID) + "/" + container.Name(cfg.GetMetadata()), Variant: records.Digest(cfg), Bound: createBound,
		Do: func(ctx context.Context) (ids.ContainerID, error) { return m.find(ctx, sandboxID, cfg, privileged) },
	})
}

// find returns the container of a configuration, after making it if there was none.
func (m *Manager) find(ctx context.Context, sandboxID ids.SandboxID, cfg *cri.ContainerConfig, privileged bool) (ids.ContainerID, error) {
	sb, err := m.cfg.Sandboxes.Get(sandboxID)
	if err != nil {
		return "", err
	}
	if !sb.Ready() {
		return "", notReady(sandboxID)
	}
	for _, rec := range m.cfg.Containers.InSandbox(sandboxID) {
		if container.Name(rec.Config().GetMetadata()) != container.Name(cfg.GetMetadata()) {
			continue
		}
		if undoing := m.cfg.Containers.Undoing(rec.ID); undoing != nil {
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
			container.Name(cfg.GetMetadata()), sandboxID, rec.ID, errdefs.ErrAlreadyExists)
	}
	if err := ocispec.Validate(spec.Promised(sb.Config(), privileged), cfg, m.cfg.Host.For(sb.Handler)); err != nil {
		return "", err
	}
	labels, err := m.cfg.Host.Labels(&sb, cfg)
	if err != nil {
		return "", err
	}
	if o := pidns.Options(cfg); o.GetPid() == cri.NamespaceMode_TARGET {
		if _, err := m.cfg.PIDs.Target(sandboxID, ids.ContainerID(o.GetTargetId())); err != nil {
			return "", err
		}
	}
	rec := container.Record{ID: ids.ContainerID(randomid.New()), SandboxID: sandboxID, Stored: records.Proto[*cri.ContainerConfig]{Message: cfg}, BootID: m.cfg.BootID, ReservedAt: time.Now(), SELinux: labels}
	return rec.ID, m.cfg.Containers.Do(ctx, rec.ID, func() error { return m.create(ctx, rec, &sb) })
}

// undoTime bounds the undoing of a Create that has failed, for which its caller waits.
const undoTime = 30 * time.Second

func (m *Manager) create(ctx context.Context, rec container.Record, sb *sandbox.Record) (err error) {
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
	if rec.StopSignal, wrong, err = container.StopSignal(rec.Config(), img.Config.StopSignal); err != nil {
		return err
	}
	if wrong != nil {
		m.cfg.Log.WarnContext(ctx, "the image's stop signal is none: the container is stopped by SIGTERM", "image", rec.ImageRef, "signal", img.Config.StopSignal, "error", wrong)
	}
	if err := m.cfg.Containers.Add(rec); err != nil {
		return err
	}
	undo := rollback.Stack{Bound: undoTime}
	defer func() { err = errors.Join(err, undo.Run(ctx)) }()
	// A container that cannot be undone now keeps its record, which nobody sees: the sandbox's removal, or recovery, tries again.
	undo.Add("the container", func(ctx context.Context) error {
		if err := m.cfg.Ends.Erase(ctx, &rec); err != nil {
			return err
		}
		return m.cfg.Containers.Forget(rec.ID)
	})
	// A sandbox that is stopped from here on finds the record, and waits for what becomes of it.
	if now, err := m.cfg.Sandboxes.Get(sb.ID); err != nil || !now.Ready() {
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
	req := protocol.CreateRequest{ID: rec.ID, Bundle: m.cfg.Folders.Bundle(rec.ID),
		Stdin: rec.Config().GetStdin(), StdinOnce: rec.Config().GetStdinOnce()}
	if req.Runtime, err = m.cfg.Host.RuntimeOf(sb.Handler); err != nil {
		return err
	}
	if rec.LogPath != "" {
		if req.LogPath, err = prepareLog(sb, rec.Config().GetLogPath()); err != nil {
			return fmt.Errorf("container %s: %w", rec.Config().GetMetadata().GetName(), err)
		}
	}
	req.LogMaxBytes, req.LogMaxFiles = m.cfg.LogRotation.Of(rec.LogPath)
	if _, err := m.cfg.Executor.Create(ctx, req); err != nil {
		return fmt.Errorf("container %s: %w", rec.Config().GetMetadata().GetName(), m.cfg.CDI.WithHooks(rec.Config(), err))
	}
	if err := failpoint.Hit("runtime/container-create/created"); err != nil {
		return err
	}
	if err := m.cfg.RootFS.Release(rec.ID); err != nil {
		return err
	}
	if _, err := m.cfg.Containers.Modify(rec.ID, func(r *container.Record) bool {
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
func (m *Manager) pinAndBuild(ctx context.Context, rec *container.Record, sb *sandbox.Record, img store.Image) error {
	for _, image := range rec.Images() {
		if image == img.ID {
			continue
		}
		if err := m.cfg.Images.Pin(ctx, image, rec.ID); err != nil {
			return err
		}
	}
	lower, err := m.cfg.RootFS.Layers(ctx, img.ID)
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

func notReady(sandboxID ids.SandboxID) error {
	return fmt.Errorf("sandbox %s is not ready; containers need one that is: %w", sandboxID, errdefs.ErrFailedPrecondition)
}

// build makes the container's root file system and its bundle, and completes the record.
func (m *Manager) build(ctx context.Context, rec *container.Record, sb *sandbox.Record, img store.Image, lower []string) error {
	if err := m.cfg.RootFS.Mount(rec.ID, lower, rec.SELinux.Mount, sb); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/container-create/mounted"); err != nil {
		return err
	}
	user, err := m.cfg.Spec.User(rec, img.Config.User)
	if err != nil {
		return err
	}
	rec.UID, rec.GID, rec.Groups = user.UID, user.GID, user.AdditionalGids
	return m.cfg.Spec.Write(ctx, rec, sb, img, user)
}

// imageVolumes finds the images that mounts ask for. They have to be there: pulling is the client's part.
func (m *Manager) imageVolumes(ctx context.Context, mounts []*cri.Mount) ([]container.ImageVolume, error) {
	var all []container.ImageVolume
	for i, mt := range mounts {
		ref := mt.GetImage().GetImage()
		if ref == "" {
			continue
		}
		img, err := m.cfg.Images.Get(ctx, ref)
		if errdefs.IsNotFound(err) {
			err = fmt.Errorf("%w: pull it first", err)
		}
		if err != nil {
			return nil, fmt.Errorf("mount at %s: %w", mt.GetContainerPath(), err)
		}
		all = append(all, container.ImageVolume{Mount: i, ImageID: img.ID})
	}
	return all, nil
}

// imageRef is the reference by which clients know an image: a digest of a repository, else its id.
func imageRef(img store.Image) string {
	if len(img.RepoDigests) > 0 {
		return img.RepoDigests[0]
	}
	return string(img.ID)
}
