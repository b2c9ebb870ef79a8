//go:build cgo

package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// begin returns when this is the only worker. From then on it makes the keeper's death good, also before it serves; up to then the worker of the former
// program does, where there is one.
func (w *Worker) begin(ctx context.Context, retired int) error {
	var former *proc.FD
	if retired != 0 {
		var err error
		if former, err = proc.OpenFD(retired); err == nil {
			defer former.Close()
		} else if !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("the worker of the former program: %w", err)
		}
	}
	err := w.keeper.Begin(ctx)
	if !protocol.IsLost(err) {
		return err
	}
	if former == nil {
		return nil
	}
	return w.outlive(ctx, former)
}

// outlive waits for what becomes of the worker of the former program, after the keeper's death. It is an error if that becomes the keeper: it has all that this one
// has, and two would lose it to each other.
func (w *Worker) outlive(ctx context.Context, former *proc.FD) error {
	for deadline := time.Now().Add(2 * settleTimeout); ; {
		wait, cancel := context.WithTimeout(ctx, 10*time.Millisecond) // that it has become another program is no event
		err := former.Wait(wait)
		cancel()
		if err == nil {
			return nil // it had been asked to end
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", former.PID()))
		if arg := bytes.Split(args, []byte{0}); err == nil && len(arg) > 1 && string(arg[1]) == w.cfg.Keeper[1] {
			return fmt.Errorf("the keeper is gone, and the worker of the former program (process %d) has become the keeper", former.PID())
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("the keeper is gone, and the worker of the former program (process %d) neither ends nor becomes the keeper", former.PID())
		}
	}
}

// settleTimeout bounds how long a worker waits for operations on containers before it becomes the keeper.
const settleTimeout = 5 * time.Second

// succeed makes this process the keeper, after the death of the one it had. It returns only if that fails; then the
// containers go on, but none can be created.
//
// Nobody else can do it: the containers are this process's children, and it alone has their pipes and ptys. What the
// dead keeper was the parent of has gone to a stranger; that is noted, so that nobody waits for the keeper to reap it.
func (w *Worker) succeed(ctx context.Context, listener *net.UnixListener) error {
	w.log.Warn("the keeper is gone: this worker becomes the keeper")
	w.table.Close() // no new containers: their creation would need a keeper
	wait, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	estate := &hold.Estate{Build: w.cfg.Build}
	for _, c := range w.table.All() {
		if _, err := c.Take(wait); err != nil { // and it is not given back
			w.log.Warn("an operation is cut short", "container", c.ID)
		}
		if err := w.bequeath(wait, c, estate); err != nil {
			w.log.Error("a container's descriptors cannot be handed on", "container", c.ID, "error", err)
		}
	}
	lf, err := listener.File() // a duplicate
	if err != nil {
		return err
	}
	defer lf.Close()
	if estate.Listener, err = protocol.DupFile(lf); err != nil {
		return err
	}
	mem, _, err := estate.Bequeath(hold.EstateVersion) // to this very program
	if err != nil {
		return err
	}
	args := slices.Concat(w.cfg.Keeper, []string{"--inherit", fmt.Sprint(int(mem))})
	// GOMAXPROCS is a worker's, and what was armed has happened: it is survived.
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "GOMAXPROCS=") || strings.HasPrefix(kv, failpoint.EnvVar+"=")
	})
	return fmt.Errorf("execute the keeper: %w", syscall.Exec("/proc/self/exe", args, env))
}

// bequeath adds what this process has of a container to the estate. Its execs are killed, as after a worker's death.
func (w *Worker) bequeath(ctx context.Context, c *table.Container, estate *hold.Estate) error {
	for _, x := range c.Execs() {
		_ = x.Signal(unix.SIGKILL)
	}
	rec := c.Record()
	b := hold.Bequest{Holding: hold.Holding{Key: hold.ContainerKey(c.ID), PID: rec.PID, StartTime: rec.StartTime}}
	add := func(name string, fd protocol.FD) { b.Names, b.FDs = append(b.Names, name), append(b.FDs, fd) }
	if c.Process() != nil {
		_, raw, err := c.DupProcess()
		if err != nil {
			return err
		}
		add(hold.PIDFD, protocol.FD(raw))
		stat, err := proc.ReadStat(rec.PID)
		if err == nil && stat.StartTime == rec.StartTime && stat.PPID != os.Getpid() && !rec.Adopted {
			if err := w.table.Amend(c, func(r *record.Record) { r.Adopted = true }); err != nil {
				return err
			}
		}
	}
	if io := c.Stdio(); io != nil {
		if err := io.Freeze(ctx); err != nil { // what has been read would be lost with this process's memory
			w.log.Warn("a container's output is cut short", "container", c.ID, "error", err)
		}
		for name, fd := range duplicates(io) {
			add(name, fd)
		}
	}
	if len(b.FDs) > 0 {
		estate.Holdings = append(estate.Holdings, b)
	}
	return nil
}

// duplicates returns duplicates of the descriptors that are still open, by the names of package hold.
func duplicates(io *stdio.Stdio) map[string]protocol.FD {
	fds := map[string]protocol.FD{}
	for name, f := range io.Files() {
		if fd, err := protocol.DupFile(f); err == nil { // else it is closed: its stream has ended
			fds[name] = fd
		}
	}
	return fds
}
