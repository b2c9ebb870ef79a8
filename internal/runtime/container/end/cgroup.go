package end

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/runtime/container"
)

// clearCgroup removes the container's cgroup with what runs in it. The executor has done that, unless it has lost the
// container: then its processes end here, with the last that is known of them.
func (m *Ender) clearCgroup(rec *container.Record) error {
	sb, err := m.cfg.Sandboxes.Get(rec.SandboxID)
	if errdefs.IsNotFound(err) {
		return nil // its cgroup has gone with it
	}
	if err != nil {
		return err
	}
	return m.dropCgroup(sb.CgroupOf(rec.ID))
}

// dropCgroup removes a cgroup that the executor should have removed, with what runs in it.
func (m *Ender) dropCgroup(path string) error {
	if there, err := m.cfg.Cgroups.Exists(path); err != nil || !there {
		return err
	}
	m.cfg.Log.Warn("the executor has left a cgroup; it is removed with what runs in it", "cgroup", path)
	if err := m.killIn(path); err != nil {
		return err
	}
	if systemd.IsScope(path) {
		return systemd.StopScopeOf(path)
	}
	return m.cfg.Cgroups.RemoveTree(path)
}

// killedWithin is how long a process may take to end that has been killed. On a machine with no processor to spare, one of a pod that may use
// next to nothing of it takes seconds to come to its end.
const killedWithin = 30 * time.Second

// killIn kills the processes of a cgroup, and waits for their end. Each is held by a descriptor before it is looked for again, so that nobody
// else's is killed who has got the number meanwhile.
func (m *Ender) killIn(path string) error {
	pids, err := m.cfg.Cgroups.Processes(path)
	if err != nil {
		return err
	}
	var errs []error
	var held []*proc.FD
	for _, pid := range pids {
		fd, err := proc.OpenFD(pid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer fd.Close()
		held = append(held, fd)
	}
	if pids, err = m.cfg.Cgroups.Processes(path); err != nil {
		return err
	}
	for _, fd := range held {
		if !slices.Contains(pids, fd.PID()) {
			continue
		}
		if err := fd.Signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killedWithin)
	defer cancel()
	for _, fd := range held {
		if slices.Contains(pids, fd.PID()) && fd.Wait(ctx) != nil {
			break // who removes the cgroup says which processes are left
		}
	}
	return nil
}
