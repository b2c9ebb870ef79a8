//go:build cgo

// Package worker is the half of the executor that works: it creates containers with libcontainer, moves their stdio,
// writes their logs, and serves monopod.
//
// It may be killed at any time. What it must not lose is with the keeper (package hold), in its records (written before
// each step), and in the journal of exits; the next worker goes on from there.
package worker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/calls"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/engine/command"
	"monopod.dev/monopod/internal/executor/worker/engine/native"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/life"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/recovery"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Config says where to work.
type Config struct {
	Dir   string // the executor's directory
	Build string // this program's version, for Hello
	// Keeper is the command of a keeper, for the case that this worker has to become one.
	Keeper []string
	// StartPatience bounds how long a process may take from its birth to its program.
	StartPatience time.Duration
	Log           *slog.Logger
}

// Worker serves the containers of one node. It is what its parts are put together in; beside that it does what is done to all of them
// at once: it hands them over, and becomes the keeper.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	keeperPID int
	keeper    *hold.Client
	table     *table.Table
	calls     *calls.Calls
	handing   sync.Mutex // held by the one handover
}

// Run works until the keeper goes, or until a Shutdown. The descriptors of package hold must be in place.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &Worker{cfg: cfg, log: cfg.Log, keeperPID: os.Getppid()}
	records, err := record.Open(cfg.Dir)
	if err != nil {
		return err
	}
	w.table = table.New(records)
	p, err := w.open(ctx, records)
	if err != nil {
		return err
	}
	channel, err := fileConn(hold.ChannelFD, "channel")
	if err != nil {
		return fmt.Errorf("channel to the keeper: %w", err)
	}
	w.keeper = hold.NewClient(protocol.NewConn(ctx, channel, protocol.ConnConfig{Serve: w.serveKeeper, Log: cfg.Log}))
	engines := w.newEngines(ctx, p)
	life := life.New(life.Config{Ctx: ctx, Table: w.table, Records: records, Journal: p.journal, Keeper: w.keeper, KeeperPID: w.keeperPID, Log: cfg.Log,
		Remove: func(ctx context.Context, rec record.Record) error { return engines.Of(rec).Remove(ctx, rec) }})
	w.calls = calls.New(calls.Config{Ctx: ctx, Build: cfg.Build, BootID: p.bootID, KeeperPID: w.keeperPID, Table: w.table, Life: life, Engines: engines,
		Specs: p.specs, Hugepages: p.hugepages, Handover: w.handover, Shutdown: w.keeper.Shutdown, End: cancel, Log: cfg.Log})
	defer w.calls.Close()
	held, retired, err := w.watchKeeper(ctx, life)
	if err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/begun"); err != nil {
		return err
	}
	if err := w.begin(ctx, retired); err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/alone"); err != nil {
		return err
	}
	if err := command.RemoveConsoles(cfg.Dir); err != nil {
		cfg.Log.Warn("sockets of consoles stay behind", "error", err)
	}
	recovery.New(recovery.Config{Ctx: ctx, BootID: p.bootID, KeeperPID: w.keeperPID, Table: w.table, Life: life, Records: records, Journal: p.journal, Keeper: w.keeper, Log: cfg.Log,
		Gate: func(rec record.Record) string { return engines.Of(rec).Gate(rec) }}).Run(held)
	return w.serve(ctx)
}

// serve serves the public socket until ctx ends.
func (w *Worker) serve(ctx context.Context) error {
	unix.CloseOnExec(hold.ListenerFD)
	f := os.NewFile(hold.ListenerFD, "listener")
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("public socket: %w", err)
	}
	defer l.Close()
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("public socket is a %T, not a unix socket", l)
	}
	ul.SetUnlinkOnClose(false)                                           // the socket's name is the keeper's
	if err := w.keeper.Ready(ctx); err != nil && !protocol.IsLost(err) { // without a keeper it becomes the keeper, as later
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		<-w.keeper.Done()
		if ctx.Err() == nil {
			w.log.Error("this worker goes on without a keeper, and cannot create containers", "error", w.succeed(ctx, ul))
		}
	}()
	return w.accept(ctx, ul)
}

// serveKeeper answers the keeper's question whether this worker gets on, which it does not when nobody gives back the lock that all
// calls need.
func (w *Worker) serveKeeper(_ context.Context, call *protocol.Call) (any, error) {
	if call.Method != hold.MethodPing {
		return nil, fmt.Errorf("%w: worker method %q", errdefs.ErrNotImplemented, call.Method)
	}
	if err := failpoint.Hit("executor/worker/ping"); err != nil {
		return nil, err
	}
	w.table.Ping()
	return struct{}{}, nil
}

// onlyLibcontainer is the environment variable that, set to anything, lets libcontainer start all processes: to compare, and to
// get by should the other way fail.
const onlyLibcontainer = "MONOPOD_ONLY_LIBCONTAINER"

// parts are what a worker is made of beside the keeper.
type parts struct {
	bootID    string
	records   *record.Store
	journal   *journal.Journal
	specs     *bundle.Reader
	hugepages group.Hugepages
}

func (w *Worker) open(ctx context.Context, records *record.Store) (p parts, err error) {
	p.records = records
	if p.bootID, err = proc.BootID(); err != nil {
		return p, err
	}
	if p.journal, err = journal.Open(filepath.Join(w.cfg.Dir, journal.DirName), p.bootID); err != nil {
		return p, err
	}
	if p.specs, err = bundle.NewReader(w.log); err != nil {
		return p, err
	}
	p.hugepages.Host, err = cgroup.Detect()
	return p, err
}

// newEngines makes the ways in which containers are made. The keeper is there by now.
func (w *Worker) newEngines(ctx context.Context, p parts) engine.Engines {
	cfg := command.Config{Dir: w.cfg.Dir, Patience: w.cfg.StartPatience, KeeperPID: w.keeperPID, Records: p.records, Specs: p.specs, Hugepages: p.hugepages, Log: w.log}
	e := engine.Engines{Runtimes: command.NewRuntimes(ctx, cfg), Libcontainer: command.NewLibcontainer(ctx, cfg)}
	if os.Getenv(onlyLibcontainer) != "" {
		return e
	}
	native, err := native.New(ctx, native.Config{Dir: w.cfg.Dir, Patience: w.cfg.StartPatience, Records: p.records, Specs: p.specs, Keeper: w.keeper, Log: w.log})
	if err != nil {
		w.log.Warn("containers start the slow way", "error", err)
		return e
	}
	e.Native = native
	return e
}

// fileConn turns an inherited descriptor into a connection.
func fileConn(fd uintptr, name string) (*net.UnixConn, error) {
	unix.CloseOnExec(int(fd))
	f := os.NewFile(fd, name)
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("descriptor %d is a %T, not a unix socket", fd, c)
	}
	return uc, nil
}

// watchKeeper takes what the keeper holds, and goes on to take exits from it. retired is hold.Note's.
func (w *Worker) watchKeeper(ctx context.Context, life *life.Life) (held map[string]*recovery.Held, retired int, err error) {
	held = map[string]*recovery.Held{}
	synced := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- w.keeper.Watch(ctx, func(n hold.Note, fds []protocol.FD) {
			switch {
			case n.Holding != nil:
				held[n.Holding.Key] = recovery.NewHeld(*n.Holding, fds)
				return
			case n.Synced:
				retired = n.Retired
				close(synced)
			case n.Exit != nil:
				life.Exited(*n.Exit)
			}
			protocol.CloseFDs(fds)
		})
	}()
	select {
	case <-synced:
		return held, retired, nil
	case err := <-failed:
		return nil, 0, fmt.Errorf("take over from the keeper: %w", err)
	}
}

// accept serves connections until ctx ends.
func (w *Worker) accept(ctx context.Context, l *net.UnixListener) error {
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		if err := fromRoot(c); err != nil {
			w.log.Warn("connection refused", "error", err)
			c.Close()
			continue
		}
		w.calls.Serve(ctx, c)
	}
}

// fromRoot is an error unless root is at the other end. The socket's mode says the same; this holds should somebody
// change it.
func fromRoot(c *net.UnixConn) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := rc.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if cerr != nil {
		return cerr
	}
	if cred.Uid != 0 {
		return fmt.Errorf("%w: user %d (process %d) is not root", errdefs.ErrPermissionDenied, cred.Uid, cred.Pid)
	}
	return nil
}
