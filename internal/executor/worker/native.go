//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// native makes containers by package spawn.
type native struct {
	ctx     context.Context // ends with the worker
	spawner *spawn.Spawner
	records *record.Store
	specs   *bundle.Reader
	keeper  *hold.Client
	turns   *turns
	log     *slog.Logger
}

// gate is the FIFO at which a spawned container's first process waits. It has a name, so that a successor of this worker finds it.
func (n *native) gate(id string) string { return n.records.File(id, "gate") }

func (n *native) create(ctx context.Context, s initStart) (e *ends, err error) {
	if err := group.Make(s.cgroups, s.config.Cgroups); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(n.gate(s.rec.ID), 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: n.gate(s.rec.ID), Err: err}
	}
	// With O_RDWR it waits for a byte, not for a writer, and never sees an end.
	gate, err := os.OpenFile(n.gate(s.rec.ID), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	e = emptyEnds()
	if !s.rec.Terminal {
		if e, err = newEnds(s.process, s.stdin); err != nil {
			return nil, err
		}
	}
	// Before there is a process: whatever it opens of the container's, it opens under the container's device rules.
	if err := s.cgroups.Set(s.config.Cgroups.Resources); err != nil {
		return e, fmt.Errorf("resources: %w", err)
	}
	child, err := n.spawner.Start(ctx, spawn.Start{ID: s.rec.ID, Config: s.config, Process: s.process, Stdio: stdioOf(s.process), Terminal: s.rec.Terminal,
		Cgroups: s.rec.Cgroups, Gate: gate})
	e.closeTheirs()
	if err != nil {
		return e, err
	}
	defer child.FD.Close() // it is opened again by whoever watches
	if child.PTY >= 0 {
		e.ours[hold.PTY] = protocol.FD(child.PTY)
	}
	if err := n.ready(s, child); err != nil {
		child.Status.Close()
		return e, errors.Join(err, killAndReap(child.FD.PID()))
	}
	s.rec.PID = child.FD.PID()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.status = child.Status
	return e, nil
}

// ready does to the first process, which is at its gate, what is done from outside.
func (n *native) ready(s initStart, child *spawn.Child) error {
	if err := failpoint.Hit("executor/worker/spawned"); err != nil {
		return err
	}
	if err := setScore(child.FD.PID(), s.config.OomScoreAdj); err != nil {
		return err
	}
	kept, err := n.spawner.Keep(s.config)
	if err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.kept = kept
	return nil
}

func stdioOf(p *libcontainer.Process) (s spawn.Stdio) {
	file := func(v any) *os.File { f, _ := v.(*os.File); return f }
	return spawn.Stdio{In: file(p.Stdin), Out: file(p.Stdout), Err: file(p.Stderr)}
}

// setScore sets how willingly the kernel kills a process for want of memory.
func setScore(pid int, score *int) error {
	if score == nil {
		return nil
	}
	path := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	return os.WriteFile(path, []byte(strconv.Itoa(*score)), 0)
}

// openSpawnGate lets a spawned process go on to its program.
func openSpawnGate(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return nil // nobody waits there: it has been let go, or has ended, which its exit tells
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write([]byte{0}); err != nil && !errors.Is(err, unix.EPIPE) {
		return err
	}
	return os.Remove(path)
}

func (n *native) start(ctx context.Context, c *container, rec record.Record) (executed bool, err error) {
	if err := openSpawnGate(n.gate(rec.ID)); err != nil {
		return false, err
	}
	c.mu.Lock()
	status := c.status
	c.status = nil
	c.mu.Unlock()
	if status == nil { // a predecessor of this worker had it
		return awaitExecution(ctx, c.ended, rec.PID, rec.StartTime)
	}
	defer status.Close()
	ctx, cancel := context.WithTimeout(ctx, executionPatience)
	defer cancel()
	err = spawn.AwaitExecution(ctx, status)
	var programErr *spawn.ProgramError
	if errors.As(err, &programErr) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The word that does not come is that of a process that executed, and of one that was killed.
	return !isDead(rec), nil
}

func (n *native) waits(rec record.Record) bool {
	_, err := os.Lstat(n.gate(rec.ID))
	return err == nil
}

func (n *native) released(rec record.Record) { os.Remove(n.gate(rec.ID)) }

func (n *native) signal(_ context.Context, _ record.Record, fd *proc.FD, sig unix.Signal) error {
	return fd.Signal(sig)
}

func (n *native) update(_ context.Context, rec record.Record, change resourceChange) error {
	return rec.Group().Set(change.values)
}

func (n *native) remove(context.Context, record.Record) error { return nil } // the gate goes with the record

func (n *native) parent() int { return os.Getpid() }
