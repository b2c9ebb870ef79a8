package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// A pod that shares its PID namespace has an init, the one process that a sandbox ever has: pid 1 of the namespace, which reaps. It
// is made with the first container that needs it, so that sandboxes which only leave the mode at its zero value cost no process.
//
// The executor holds it, under the sandbox's id. That there may be one says a file, the pin of its namespace, which is there
// before the init is asked for and goes when the init has gone: nothing is in the record, so that containers which are created
// side by side and a stop of the sandbox do not overwrite each other's facts.

// Executor is what sandboxes need of the executor's client.
type Executor interface {
	Init(ctx context.Context, req protocol.InitRequest) (protocol.InitResponse, error)
	List(ctx context.Context) ([]protocol.ContainerState, error)
}

// HostPID says that the PID namespace that the pod's containers share is the node's.
func (r *Record) HostPID() bool {
	return r.Config().GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == cri.NamespaceMode_NODE
}

// PIDNamespace returns the path of the PID namespace that containers of the pod share, empty for the node's. The first call makes
// it, with the pod's init. It is for a container under creation, which a Stop of the sandbox waits for: so there is no init
// that a Stop does not see.
func (m *Manager) PIDNamespace(ctx context.Context, rec *Record) (path string, err error) {
	if rec.HostPID() {
		return "", nil
	}
	err = m.inits.Do(ctx, rec.ID, func() error {
		if path, err = ns.PreparePID(m.cfg.Folders.namespaces(rec.ID)); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-init/prepared"); err != nil {
			return err
		}
		_, err := m.cfg.Executor.Init(ctx, protocol.InitRequest{ID: rec.InitID(), CgroupPath: rec.AskFor(rec.InitID()), Pin: path,
			UserNamespace: m.cfg.Folders.Namespace(rec, ns.User), NetworkNamespace: m.cfg.Folders.Namespace(rec, ns.Network)})
		if err != nil {
			return fmt.Errorf("shared PID namespace of sandbox %s: %w", rec.ID, err)
		}
		if err := ns.SetApart(path); err != nil {
			return err
		}
		return failpoint.Hit("runtime/sandbox-init/made")
	})
	return path, err
}

// InitID is the id under which the executor holds the sandbox's init, if it has one.
func (r *Record) InitID() ids.ContainerID { return ids.ContainerID(r.ID) }

// hasInit says that an init was asked for and has not been seen off.
func (m *Manager) hasInit(id ids.SandboxID) bool {
	_, err := os.Lstat(ns.Path(m.cfg.Folders.namespaces(id), ns.PID))
	return err == nil
}

// endInit ends the pod's init, with all that its namespace holds.
func (m *Manager) endInit(ctx context.Context, rec *Record) error {
	if !m.hasInit(rec.ID) {
		return nil
	}
	if err := m.cfg.Ends.End(ctx, rec.InitID(), rec.CgroupOf(rec.InitID())); err != nil {
		return fmt.Errorf("end the init of sandbox %s: %w", rec.ID, err)
	}
	return nil
}

// WithInit lists the sandboxes that are to have an init which lives.
func (m *Manager) WithInit() (have []ids.SandboxID) {
	for id, rec := range m.cfg.Records.all() {
		if rec.ReadyAt.IsZero() || !rec.ReclaimedAt.IsZero() {
			continue
		}
		// One whose namespace is not mounted yet is being made.
		if pinned, err := ns.Pinned(m.cfg.Folders.namespaces(id), ns.PID); err == nil && pinned {
			have = append(have, id)
		}
	}
	return have
}

// InitEnded takes in that a sandbox's init has ended: the kernel has killed all of the shared namespace with it, so the sandbox is
// not ready any more, and is stopped. It is repeatable, and does nothing for a sandbox that is gone.
func (m *Manager) InitEnded(ctx context.Context, id ids.SandboxID) error {
	if rec, err := m.cfg.Records.Get(id); err != nil || !rec.ReclaimedAt.IsZero() {
		return nil
	} else if rec.Ready() {
		m.cfg.Log.Warn("the init of a sandbox has ended: the sandbox is not ready", "sandbox", id)
	}
	err := m.Stop(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// recoverInits makes the inits that the executor holds and the records agree: one without a living sandbox is ended, and a sandbox
// whose init is gone is not ready.
func (m *Manager) recoverInits(ctx context.Context) error {
	held, err := m.cfg.Executor.List(ctx)
	if err != nil {
		return fmt.Errorf("ask the executor for the pods' inits: %w", err)
	}
	var errs []error
	alive, recs := map[ids.SandboxID]bool{}, m.cfg.Records.all()
	for _, s := range held {
		if s.Kind != protocol.KindPodInit {
			continue
		}
		id := ids.SandboxID(s.ID) // see InitID
		rec, known := recs[id]
		switch {
		case known && rec.ReclaimedAt.IsZero():
			alive[id] = s.Phase == protocol.Running
		case !known && m.cfg.Records.Unread(id):
			m.cfg.Log.Error("a pod's init is in no record that can be read; it is left as it is", "sandbox", id)
		default:
			m.cfg.Log.Warn("ending the init of a sandbox that is gone", "sandbox", id)
			errs = append(errs, m.cfg.Ends.End(ctx, s.ID, ""))
		}
	}
	for _, id := range m.WithInit() {
		if rec := recs[id]; rec.Ready() && rec.BootID == m.cfg.BootID && !alive[id] {
			m.cfg.Log.Warn("the sandbox's init is gone: the sandbox is not ready", "sandbox", id)
			// The executor tells of it once more when it is listened to; then the sandbox is stopped, for its containers may run on.
			_, err := m.cfg.Records.Modify(id, (*Record).stopped)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
