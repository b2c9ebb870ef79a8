package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/rollback"
	"monopod.dev/monopod/internal/kit/wait"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/records"
)

// runBound is how long a Run may take when its client has gone.
const runBound = 2 * time.Minute

// Handler is the runtime handler of a sandbox that is to be made; ByDefault: the request named none.
type Handler struct {
	Name      string
	ByDefault bool
}

// Run makes a sandbox ready and returns its id. The configuration has been validated. A Run of the same metadata and
// configuration joins the one under way, or returns the sandbox that is there; with another configuration it is
// errdefs.ErrAlreadyExists. What nobody waits for any more when it is ready is undone after RecordsConfig.AbandonAfter, if it is not claimed.
func (m *Manager) Run(ctx context.Context, cfg *cri.PodSandboxConfig, handler Handler) (ids.SandboxID, error) {
	return m.cfg.Records.Make(ctx, abandon.Work[ids.SandboxID]{
		Key: "run " + Name(cfg.GetMetadata()), Variant: handler.Name + " " + records.Digest(cfg), Bound: runBound,
		Do: func(ctx context.Context) (ids.SandboxID, error) { return m.find(ctx, cfg, handler) },
	})
}

// find returns the sandbox of a configuration, after making it if there was none.
func (m *Manager) find(ctx context.Context, cfg *cri.PodSandboxConfig, handler Handler) (ids.SandboxID, error) {
	for {
		rec, ok := m.cfg.Records.named(cfg.GetMetadata())
		if !ok {
			break
		}
		if undoing := m.cfg.Records.Undoing(rec.ID); undoing != nil {
			select {
			case <-undoing:
				continue
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		if rec.Ready() && rec.Handler == handler.Name && proto.Equal(rec.Config(), cfg) {
			return rec.ID, nil
		}
		return "", fmt.Errorf("sandbox %q is there already as %s (%s): remove it, or use another attempt number: %w",
			Name(cfg.GetMetadata()), rec.ID, rec.State(), errdefs.ErrAlreadyExists)
	}
	logDir, err := resolveLogDir(cfg.GetLogDirectory())
	if err != nil {
		logDir = "" // whoever wants a log in it is told
	}
	rec := Record{ID: ids.SandboxID(randomid.New()), LogDir: logDir, OneTmpfs: true, Stored: records.Proto[*cri.PodSandboxConfig]{Message: cfg}, Handler: handler.Name, ByDefault: handler.ByDefault, BootID: m.cfg.BootID, CreatedAt: time.Now()}
	return rec.ID, m.ops.Do(ctx, rec.ID, func() error { return m.run(ctx, rec) })
}

// Name is what makes a sandbox unique among those of a runtime (PodSandboxMetadata).
func Name(md *cri.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%d", md.GetName(), md.GetNamespace(), md.GetUid(), md.GetAttempt())
}

func (m *Manager) run(ctx context.Context, rec Record) (err error) {
	if err := m.cfg.DB.Room(); err != nil {
		return err
	}
	if err := m.cgroups.place(&rec); err != nil {
		return err
	}
	// A cgroup that is there belongs to the client that made it, or to the pod's sandbox before this one.
	exists, err := m.cfg.Cgroups.Exists(rec.Cgroup)
	if err != nil {
		return err
	}
	rec.OwnCgroup = !exists || m.cfg.Records.shares(&rec)
	release, err := m.levels.label(&rec)
	if err != nil {
		return err
	}
	err = m.cfg.Records.Add(rec)
	release()
	if err != nil {
		return err
	}
	undo := rollback.Stack{Bound: undoTime}
	defer func() { err = errors.Join(err, undo.Run(ctx)) }()
	undo.Add("the sandbox", func(ctx context.Context) error { return m.undo(ctx, &rec) })
	if err := failpoint.Hit("runtime/sandbox-run/persisted"); err != nil {
		return err
	}
	if err := m.build(ctx, &rec); err != nil {
		return fmt.Errorf("sandbox of pod %s/%s: %w", rec.Config().GetMetadata().GetNamespace(), rec.Config().GetMetadata().GetName(), err)
	}
	if err := failpoint.Hit("runtime/sandbox-run/built"); err != nil {
		return err
	}
	made, err := m.cfg.Records.Modify(rec.ID, func(r *Record) bool {
		r.ReadyAt, r.IPs = time.Now(), rec.IPs
		return true
	})
	if err != nil {
		return err
	}
	undo.Release()
	if err := failpoint.Hit("runtime/sandbox-run/ready"); err != nil {
		return err
	}
	m.cfg.Listener.SandboxStarted(made)
	return nil
}

// build makes everything that a sandbox is. What does not need one another is made at once: most of the time goes by in the kernel.
func (m *Manager) build(ctx context.Context, rec *Record) error {
	var req network.Request
	parts := []func() error{func() error { return m.buildCgroup(rec) }, func() error { return m.buildNamespaces(rec) }}
	if !rec.HostNetwork() {
		var err error
		if req, err = m.networkRequest(rec); err != nil {
			return err
		}
		parts = append(parts, func() error { m.cfg.Network.Prepare(ctx, req); return nil })
	}
	if err := wait.All(parts...); err != nil {
		return err
	}
	if !rec.HostNetwork() {
		res, err := m.cfg.Network.Setup(ctx, req)
		if err != nil {
			return err
		}
		rec.IPs = res.IPs
		o := namespaces(rec.Config())
		o.Procfs = &m.procfs
		if err := ns.SetOfInterfaces(m.cfg.Folders.namespaces(rec.ID), o); err != nil {
			return err
		}
	}
	return m.writeFiles(rec)
}

func (m *Manager) buildCgroup(rec *Record) error {
	if rec.OwnCgroup {
		if err := m.cgroups.make(rec); err != nil {
			return err
		}
	}
	if err := m.limit(rec); err != nil {
		return err
	}
	return failpoint.Hit("runtime/sandbox-run/cgroup")
}

func (m *Manager) buildNamespaces(rec *Record) error {
	if rec.HasUserNamespace() {
		if err := checkReachable(filepath.Dir(m.cfg.Folders.Root)); err != nil {
			return err
		}
	}
	o := namespaces(rec.Config())
	o.Procfs, o.Apart = &m.procfs, m.apart
	if !m.cfg.PrivilegedPorts {
		o.Defaults = unprivileged
	}
	if err := ns.Create(m.cfg.Folders.namespaces(rec.ID), o); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/sandbox-run/namespaces"); err != nil {
		return err
	}
	if err := m.mountTmpfs(rec); err != nil {
		return err
	}
	return failpoint.Hit("runtime/sandbox-run/shm")
}

// undoTime bounds undo, for which the caller of a Run that has failed waits.
const undoTime = 30 * time.Second

// undo removes what a Run that did not come to its end has made. A sandbox that cannot be undone now keeps its record, which
// nobody sees: recovery tries again.
func (m *Manager) undo(ctx context.Context, rec *Record) error {
	if err := errors.Join(m.reclaim(ctx, rec), m.erase(ctx, rec)); err != nil {
		_, stored := m.cfg.Records.Modify(rec.ID, func(*Record) bool { return true }) // what it was intended by may be gone with its folder
		return errors.Join(err, stored)
	}
	return m.cfg.Records.Forget(rec.ID)
}

// reclaim ends the init and gives back the address, the host's interfaces and the namespaces. Every step that can be runs, and may be repeated.
func (m *Manager) reclaim(ctx context.Context, rec *Record) error {
	errs := []error{m.endInit(ctx, rec)}
	if !rec.HostNetwork() {
		m.cfg.Lent.giveBack(rec)
		errs = append(errs, m.cfg.Network.Teardown(ctx, rec.ID))
	}
	if errs[0] != nil {
		return errors.Join(errs...) // the pin stays: it tells that there is an init to end
	}
	errs = append(errs, ns.Remove(m.cfg.Folders.namespaces(rec.ID)), mount.UnmountBelow(m.cfg.Folders.Dir(rec.ID)))
	return errors.Join(errs...)
}

// erase removes the files and the cgroup. Every step runs, and may be repeated.
func (m *Manager) erase(ctx context.Context, rec *Record) error {
	var errs []error
	if rec.OwnCgroup && !m.cfg.Records.shares(rec) {
		errs = append(errs, m.cgroups.remove(rec))
	}
	// Nothing that is mounted may be emptied with the folder.
	if err := mount.UnmountBelow(m.cfg.Folders.Dir(rec.ID)); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, tree.Remove(ctx, m.cfg.Folders.Dir(rec.ID)))...)
}
