//go:build cgo

// Package native is the engine that makes containers by package spawn, in a few milliseconds.
package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/execution"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// Engine makes containers by package spawn.
type Engine struct {
	ctx     context.Context // ends with the worker
	cfg     Config
	spawner *spawn.Spawner
	turns   *turns
}

// Holder holds a further process for the case that this worker dies; see life.Holder.
type Holder interface {
	Hold(ctx context.Context, h hold.Holding, fds ...protocol.FD) error
	Release(ctx context.Context, key string) error
}

// Config is what it needs.
type Config struct {
	Dir      string        // the executor's
	Patience time.Duration // how long a process may take from its birth to its program
	Records  *record.Store
	Specs    *bundle.Reader
	Keeper   Holder
	Log      *slog.Logger
}

// New starts the zygote, which ends with ctx. It is an error where this kernel lacks what it needs.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	spawner, err := spawn.New(ctx, cfg.Dir, cfg.Patience)
	if err != nil {
		return nil, err
	}
	return &Engine{ctx: ctx, cfg: cfg, spawner: spawner, turns: newTurns()}, nil
}

var _ engine.Engine = (*Engine)(nil)

// memory is what is remembered of a container.
type memory struct {
	late lateness // of its commands' starts

	mu sync.Mutex
	// status tells what becomes of a spawned process that is not let go yet; nil: unknown, or told.
	status *os.File
	kept   *spawn.Kept // what execs need to know; nil: not loaded yet
}

func memoryOf(c *table.Container) *memory {
	return c.Remember(func() io.Closer { return &memory{} }).(*memory) // a container stays with its engine
}

// takeStatus returns the status, which is the caller's from then on.
func (m *memory) takeStatus() *os.File {
	m.mu.Lock()
	defer m.mu.Unlock()
	status := m.status
	m.status = nil
	return status
}

// Close ends it with the container.
func (m *memory) Close() error {
	if status := m.takeStatus(); status != nil {
		return status.Close()
	}
	return nil
}

// gate is the FIFO at which a spawned container's first process waits. It has a name, so that a successor of this worker finds it.
func (n *Engine) gate(id ids.ContainerID) string { return n.cfg.Records.File(id, "gate") }

// Create is engine.Engine's.
func (n *Engine) Create(ctx context.Context, s engine.Initial) (made engine.Made, err error) {
	if err := group.Make(s.Cgroups, s.Config.Cgroups); err != nil {
		return made, err
	}
	if err := unix.Mkfifo(n.gate(s.Record.ID), 0o600); err != nil {
		return made, &os.PathError{Op: "mkfifo", Path: n.gate(s.Record.ID), Err: err}
	}
	// With O_RDWR it waits for a byte, not for a writer, and never sees an end.
	gate, err := os.OpenFile(n.gate(s.Record.ID), os.O_RDWR, 0)
	if err != nil {
		return made, err
	}
	defer gate.Close()
	made.Parent, made.Ends = os.Getpid(), engine.NoEnds()
	if !s.Record.Terminal {
		if made.Ends, err = engine.NewEnds(s.Process, s.Stdin); err != nil {
			return engine.Made{}, err
		}
	}
	// Before there is a process: whatever it opens of the container's, it opens under the container's device rules.
	if err := group.Apply(s.Cgroups, s.Config.Cgroups.Resources); err != nil {
		return made, fmt.Errorf("resources: %w", err)
	}
	child, err := n.spawner.Start(ctx, spawn.Start{ID: s.Record.ID, Config: s.Config, Process: s.Process, Stdio: stdioOf(s.Process), Terminal: s.Record.Terminal,
		Cgroups: s.Record.Cgroups, Gate: gate})
	made.Ends.CloseTheirs()
	if err != nil {
		return made, err
	}
	defer child.FD.Close() // it is opened again by whoever watches
	if child.PTY >= 0 {
		made.Ends.Ours[hold.PTY] = protocol.FD(child.PTY)
	}
	memory := memoryOf(s.Container)
	if err := n.ready(s, child, memory); err != nil {
		child.Status.Close()
		return made, errors.Join(err, execution.KillAndReap(child.FD.PID()))
	}
	made.PID = child.FD.PID()
	memory.mu.Lock()
	defer memory.mu.Unlock()
	memory.status = child.Status
	return made, nil
}

// ready does to the first process, which is at its gate, what is done from outside.
func (n *Engine) ready(s engine.Initial, child *spawn.Child, memory *memory) error {
	if err := failpoint.Hit("executor/worker/spawned"); err != nil {
		return err
	}
	if err := setScore(child.FD.PID(), s.Config.OomScoreAdj); err != nil {
		return err
	}
	kept, err := n.spawner.Keep(s.Config)
	if err != nil {
		return err
	}
	memory.mu.Lock()
	defer memory.mu.Unlock()
	memory.kept = kept
	return nil
}

func stdioOf(p *libcontainer.Process) (s spawn.Stdio) {
	file := func(v any) *os.File { f, _ := v.(*os.File); return f }
	return spawn.Stdio{In: file(p.Stdin), Out: file(p.Stdout), Err: file(p.Stderr)}
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

// Start is engine.Engine's.
func (n *Engine) Start(ctx context.Context, c *table.Container, rec record.Record) (executed bool, err error) {
	if err := openSpawnGate(n.gate(rec.ID)); err != nil {
		return false, err
	}
	status := memoryOf(c).takeStatus()
	if status == nil { // a predecessor of this worker had it
		return engine.AwaitExecution(ctx, c.Ended(), rec.PID, rec.StartTime)
	}
	defer status.Close()
	ctx, cancel := context.WithTimeout(ctx, engine.ExecutionPatience)
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
	return !engine.IsDead(rec), nil
}

// Gate is engine.Engine's.
func (n *Engine) Gate(rec record.Record) string { return n.gate(rec.ID) }

// Signal is engine.Engine's.
func (n *Engine) Signal(_ context.Context, _ record.Record, fd *proc.FD, sig unix.Signal) error {
	return fd.Signal(sig)
}

// Update is engine.Engine's.
func (n *Engine) Update(_ context.Context, rec record.Record, change engine.Change) error {
	return rec.Group().Set(change.Values)
}

// Remove is engine.Engine's: the gate goes with the record.
func (n *Engine) Remove(context.Context, record.Record) error { return nil }

// setScore sets how willingly the kernel kills a process for want of memory.
func setScore(pid int, score *int) error {
	if score == nil {
		return nil
	}
	path := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	return os.WriteFile(path, []byte(strconv.Itoa(*score)), 0)
}
