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
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
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

// Worker serves the containers of one node.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	ctx       context.Context // ends with the worker
	stop      context.CancelFunc
	bootID    string
	keeperPID int
	store     *record.Store
	journal   *journal.Journal
	keeper    *hold.Client
	exits     *exitBoard
	hub       *hub
	specs     *bundle.Reader
	starters  starters
	hugepages group.Hugepages
	tidier    tidier
	roots     group.Roots
	gate      gate
	handing   sync.Mutex // held by the one handover

	mu         sync.Mutex
	containers map[string]*container
	closing    bool // Shutdown: nothing new is made
}

// Run works until the keeper goes, or until a Shutdown. The descriptors of package hold must be in place.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := newWorker(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.tidier.stop()
	w.stop = cancel
	channel, err := fileConn(hold.ChannelFD, "channel")
	if err != nil {
		return fmt.Errorf("channel to the keeper: %w", err)
	}
	w.keeper = hold.NewClient(protocol.NewConn(ctx, channel, protocol.ConnConfig{Serve: w.serveKeeper, Log: cfg.Log}))
	w.starters = w.newStarters()
	held, retired, err := w.watchKeeper(ctx)
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
	w.recover(held)

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
	w.mu.Lock()
	defer w.mu.Unlock()
	return struct{}{}, nil
}

// onlyLibcontainer is the environment variable that, set to anything, lets libcontainer start all processes: to compare, and to
// get by should the other way fail.
const onlyLibcontainer = "MONOPOD_ONLY_LIBCONTAINER"

func newWorker(ctx context.Context, cfg Config) (*Worker, error) {
	w := &Worker{cfg: cfg, log: cfg.Log, ctx: ctx, keeperPID: os.Getppid(), exits: newExitBoard(), hub: newHub(), tidier: newTidier(),
		containers: map[string]*container{}}
	var err error
	if w.bootID, err = proc.BootID(); err != nil {
		return nil, err
	}
	if w.store, err = record.Open(cfg.Dir); err != nil {
		return nil, err
	}
	if w.journal, err = journal.Open(filepath.Join(cfg.Dir, journal.DirName), w.bootID); err != nil {
		return nil, err
	}
	if w.specs, err = bundle.NewReader(cfg.Log); err != nil {
		return nil, err
	}
	if w.hugepages.Host, err = cgroup.Detect(); err != nil {
		return nil, err
	}
	return w, nil
}

// newStarters makes the ways in which containers are made. The keeper is there by now.
func (w *Worker) newStarters() starters {
	commands := commands{ctx: w.ctx, records: w.store, dir: w.cfg.Dir, keeperPID: w.keeperPID, patience: w.cfg.StartPatience, specs: w.specs, hugepages: w.hugepages, log: w.log}
	own := commands
	own.own = &ownRuntime{root: filepath.Join(w.cfg.Dir, "libcontainer")}
	s := starters{commands: &commands, libcontainer: &libcontainers{&own}}
	if os.Getenv(onlyLibcontainer) != "" {
		return s
	}
	spawner, err := spawn.New(w.ctx, w.cfg.Dir, w.cfg.StartPatience)
	if err != nil {
		w.log.Warn("containers start the slow way", "error", err)
		return s
	}
	s.native = &native{ctx: w.ctx, spawner: spawner, records: w.store, specs: w.specs, keeper: w.keeper, turns: newTurns(), log: w.log}
	return s
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
func (w *Worker) watchKeeper(ctx context.Context) (held map[string]*heldSet, retired int, err error) {
	held = map[string]*heldSet{}
	synced := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- w.keeper.Watch(ctx, func(n hold.Note, fds []protocol.FD) {
			switch {
			case n.Holding != nil:
				held[n.Holding.Key] = newHeldSet(*n.Holding, fds)
				return
			case n.Synced:
				retired = n.Retired
				close(synced)
			case n.Exit != nil:
				w.exits.put(*n.Exit)
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
		s := &server{w: w}
		protocol.NewConn(ctx, c, protocol.ConnConfig{Serve: s.serve, Long: isLong, Log: w.log})
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

// get returns the container of that id.
func (w *Worker) get(id string) (*container, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[id]
	if c == nil {
		return nil, fmt.Errorf("%w: container %q", errdefs.ErrNotFound, id)
	}
	return c, nil
}

// all returns all containers.
func (w *Worker) all() (cs []*container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.containers {
		cs = append(cs, c)
	}
	return cs
}
