// Package keeper is the half of the executor that does not die: it is small and does nothing but hold and reap.
//
// It listens on the public socket before there is a worker and while there is none, so that clients wait instead of
// failing. It starts the worker, and another one when that dies; it kills one that hangs. It holds duplicates of what must not be closed, and
// it is the child subreaper: containers whose worker died become its children, and it journals their exits.
//
// It does not serve clients, knows nothing of containers, and never waits for "any child": it looks at a zombie, records
// what it has to, and then reaps that pid.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/pairs"
)

// Config says what to keep.
type Config struct {
	Socket string // path of the public socket
	Dir    string // the executor's directory; its lock file decides who is the keeper
	Cgroup string // cgroup to move to, an absolute cgroupfs path; empty: stay
	// Worker is the command of a worker; the keeper adds the descriptors of package hold.
	Worker []string
	// Watch is how often the worker is asked whether it is there; 0: every ten seconds. A worker that is silent for six times as long
	// is replaced.
	Watch time.Duration
	// Keeper is the command of a keeper, for the case that this process goes on as another program.
	Keeper []string
	// Build is this program's version.
	Build string
	// Estate is what this process has from its life as a worker, or as another program; nil: it begins anew.
	Estate *hold.Estate
	Log    *slog.Logger
	// Ready is called once, when the first worker serves.
	Ready func()
}

// ErrRunning says that another keeper has the directory.
var ErrRunning = errors.New("another executor runs in this directory")

type keeper struct {
	cfg      Config
	log      *slog.Logger
	held     *holdings
	lock     *os.File
	listener *os.File

	mu      sync.Mutex
	worker  int          // the present worker's pid; 0: none
	channel syscall.Conn // to it; nil: none
	ending  bool         // no further worker is wanted
	isReady bool
	started bool     // a worker has been started before
	heir    *heir    // the program that this one may become; nil: none
	former  *os.File // the program that this one was, until the first worker serves; nil: none

	retired   *retired // the worker of the former program, which waits for its end; nil: none
	beginning answer   // of the worker that begins when the retired one has ended; nil: none waits
	begins    chan answer
	commits   chan answer
	terminate chan os.Signal
	gone      chan int // pids of workers that have been reaped
}

// Run keeps until a worker asks for the end, or until a SIGTERM finds no container running. The latter does not change with versions: package launch ends an idle executor so
// with which it shares no protocol.
func Run(ctx context.Context, cfg Config) error {
	k := &keeper{cfg: cfg, log: cfg.Log, gone: make(chan int, 1), begins: make(chan answer), commits: make(chan answer), terminate: make(chan os.Signal, 1)}
	if cfg.Estate != nil && cfg.Estate.Lock != nil {
		k.lock = cfg.Estate.Lock.File("lock")
	} else {
		var err error
		if k.lock, err = takeLock(filepath.Join(cfg.Dir, "lock")); err != nil {
			return err
		}
	}
	defer k.lock.Close()
	bootID, err := proc.BootID()
	if err != nil {
		return err
	}
	j, err := journal.Open(filepath.Join(cfg.Dir, journal.DirName), bootID)
	if err != nil {
		return err
	}
	if cfg.Cgroup != "" {
		leave, err := joinCgroup(cfg.Cgroup)
		if err != nil {
			return fmt.Errorf("join the executor's cgroup %s: %w", cfg.Cgroup, err)
		}
		defer func() {
			if err := leave(); err != nil {
				cfg.Log.Warn("the executor's cgroup stays behind", "cgroup", cfg.Cgroup, "error", err)
			}
		}()
	}
	if err := proc.SetSubreaper(); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScoreAdj), 0); err != nil {
		cfg.Log.Info("the executor is no better protected from the OOM killer than others", "error", err)
	}
	k.held = newHoldings(j, cfg.Log)
	if err := k.open(); err != nil {
		return err
	}
	if cfg.Estate != nil {
		if err := failpoint.Hit("executor/keeper/inherited"); err != nil {
			k.giveBack(err)
			return err
		}
	}
	defer os.Remove(cfg.Socket)
	defer k.listener.Close()
	return k.run(ctx)
}

// open makes the public socket, or takes over the one that is there with all else of the estate.
func (k *keeper) open() (err error) {
	if k.cfg.Estate == nil {
		k.listener, err = listen(k.cfg.Socket)
		return err
	}
	k.listener = k.cfg.Estate.Listener.File("listener")
	k.inherit(k.cfg.Estate)
	k.log.Info("this process goes on as the keeper", "holdings", len(k.cfg.Estate.Holdings), "build", k.cfg.Build, "before", k.cfg.Estate.Build)
	return nil
}

// oomScoreAdj spares keeper and worker when memory is short: all containers hang on them. Containers do not inherit it.
const oomScoreAdj = "-998"

// takeLock makes this process the keeper of a directory, for its lifetime.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is locked", ErrRunning, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// listen makes the public socket. Whoever holds the lock may replace the socket that a dead keeper left.
func listen(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// The socket must never be there with a wider mode, so the mask is set rather than the mode changed.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	defer l.Close() // the file below is a duplicate
	l.SetUnlinkOnClose(false)
	return l.File()
}

func (k *keeper) run(ctx context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	signal.Notify(k.terminate, unix.SIGTERM)
	defer signal.Stop(k.terminate)

	var pause backoff
	dog := newWatchdog(k.cfg.Watch)
	defer dog.ticker.Stop()
	started := time.Now()
	if err := k.startWorker(ctx, dog); err != nil {
		k.giveBack(err)
		return err
	}
	var restart <-chan time.Time
	deaths := 0 // before the first worker served
	for {
		k.reap()
		select {
		case <-children:
		case <-k.terminate:
			if n := k.held.running(); n > 0 {
				k.log.Warn("SIGTERM ignored: containers run; stop them, or ask for the executor's shutdown", "containers", n)
				continue
			}
			k.log.Info("ending on SIGTERM")
			if err := failpoint.Hit("executor/keeper/terminated"); err != nil {
				k.log.Error("not ending", "error", err)
				continue
			}
			k.end()
		case <-dog.ticker.C:
			k.watch(ctx, dog)
		case <-dog.kill:
			if err := k.signalWorker(unix.SIGKILL); err != nil {
				k.log.Error("a worker that hangs cannot be killed", "error", err)
			}
		case pid := <-k.gone:
			dog.begin(nil)
			if k.isEnding() {
				k.removeEmptyDirs()
				return nil
			}
			k.setHeir(nil) // it was this worker's
			if deaths++; deaths >= maxFirstDeaths && !k.served() {
				k.giveBack(fmt.Errorf("%d workers have died, and none has served", deaths))
			}
			delay := pause.next(time.Since(started))
			k.log.Warn("the worker is gone", "pid", pid, "lived", time.Since(started).Round(time.Millisecond), "restart_in", delay)
			restart = time.After(delay)
		case <-restart:
			restart = nil
			started = time.Now()
			if err := k.startWorker(ctx, dog); err != nil {
				k.giveBack(err)
				delay := pause.next(0)
				k.log.Error("the worker cannot be started", "error", err, "again_in", delay)
				restart = time.After(delay)
			}
		case c := <-k.begins:
			k.begin(c)
		case c := <-k.commits:
			err := k.handOver()
			k.log.Error("this program goes on, and not another one", "error", err)
			c <- err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// served reports whether a worker of this process has come to serve.
func (k *keeper) served() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.isReady
}

// end lets the present worker be the last one.
func (k *keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ending = true
	if k.retired != nil { // it would make this process's end good
		unix.Kill(k.retired.pid, unix.SIGKILL)
	}
	if k.worker != 0 {
		unix.Kill(k.worker, unix.SIGKILL) // our unreaped child: the pid is its own
		return
	}
	select {
	case k.gone <- 0:
	default: // SIGTERM came once more, and the worker's end is about to be seen
	}
}

func (k *keeper) isEnding() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ending
}

// reap looks at each zombie child, records what is to be recorded, and takes it away.
func (k *keeper) reap() {
	for {
		st, ok, err := proc.PeekAnyChild()
		if err != nil {
			k.log.Error("wait for children", "error", err)
			return
		}
		if !ok {
			return
		}
		k.mu.Lock()
		isWorker, isRetired := st.PID == k.worker, k.retired != nil && st.PID == k.retired.pid
		if isWorker {
			k.worker, k.channel = 0, nil
		}
		k.mu.Unlock()
		if !isWorker && !isRetired {
			k.held.ended(st)
		}
		if err := proc.Reap(st.PID); err != nil {
			k.log.Error("reap", "pid", st.PID, "error", err)
			return
		}
		if isRetired {
			k.alone()
		}
		if isWorker {
			k.gone <- st.PID
			return // run takes it before anything else is reaped
		}
	}
}

// startWorker starts a worker with its end of the channel and the public socket, and lets it be watched.
func (k *keeper) startWorker(ctx context.Context, dog *watchdog) error {
	ours, theirs, err := pairs.Stream("channel")
	if err != nil {
		return err
	}
	defer theirs.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		ours.Close()
		return err
	}
	defer null.Close()
	files := []*os.File{null, os.Stderr, os.Stderr}
	files = append(files, make([]*os.File, 2)...)
	files[hold.ChannelFD], files[hold.ListenerFD] = theirs, k.listener
	// The worker is reaped with all other children, so os.Process is used for nothing but the start.
	k.mu.Lock()
	defer k.mu.Unlock()
	p, err := os.StartProcess("/proc/self/exe", k.cfg.Worker, &os.ProcAttr{
		Dir: "/", Files: files, Env: k.workerEnv()})
	if err != nil {
		ours.Close()
		return fmt.Errorf("start the worker: %w", err)
	}
	k.worker, k.channel = p.Pid, ours
	_ = p.Release()
	dog.begin(protocol.NewConn(ctx, ours, protocol.ConnConfig{Serve: k.serve, Log: k.log}))
	k.log.Info("worker started", "pid", k.worker)
	return nil
}

// workerEnv is the environment of a worker. Failpoints are armed in the first worker only: the next ones show that what
// happened there is survived.
func (k *keeper) workerEnv() []string {
	env := os.Environ()
	if k.started {
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, failpoint.EnvVar+"=") })
	}
	k.started = true
	return append(env, "GOMAXPROCS="+strconv.Itoa(workerProcs))
}

// workerProcs is GOMAXPROCS of the worker, and of libcontainer's init code, which gets it from there: more would only
// cost memory and start time.
const workerProcs = 2

// serve answers the worker.
func (k *keeper) serve(ctx context.Context, call *protocol.Call) (any, error) {
	switch call.Method {
	case hold.MethodWatch:
		return nil, k.held.watch(ctx, call, k.retiredPID())
	case hold.MethodBegin:
		return struct{}{}, k.ask(ctx, k.begins)
	case hold.MethodHold:
		var req hold.Holding
		if err := call.Decode(&req); err != nil {
			return nil, err
		}
		fds := call.FDs
		call.FDs = nil
		return struct{}{}, k.held.hold(req, fds)
	case hold.MethodDrop:
		var req hold.DropRequest
		if err := call.Decode(&req); err != nil {
			return nil, err
		}
		k.held.drop(req)
		return struct{}{}, nil
	case hold.MethodRelease:
		var req hold.ReleaseRequest
		if err := call.Decode(&req); err != nil {
			return nil, err
		}
		k.held.release(req.Key)
		return struct{}{}, nil
	case hold.MethodPrepare:
		var req hold.PrepareRequest
		if err := call.Decode(&req); err != nil {
			return nil, err
		}
		if len(call.FDs) != 1 {
			return nil, fmt.Errorf("%w: %d descriptors came, want the program's", errdefs.ErrInvalidArgument, len(call.FDs))
		}
		program := call.FDs[0].File("program")
		call.FDs = nil
		defer program.Close()
		return k.prepare(ctx, req, program)
	case hold.MethodCommit:
		return nil, k.ask(ctx, k.commits)
	case hold.MethodReady:
		k.ready()
		return struct{}{}, nil
	case hold.MethodShutdown:
		k.mu.Lock()
		k.ending = true
		k.mu.Unlock()
		return struct{}{}, nil
	}
	return nil, fmt.Errorf("%w: keeper method %q", errdefs.ErrNotImplemented, call.Method)
}

func (k *keeper) ready() {
	k.mu.Lock()
	first := !k.isReady
	k.isReady = true
	k.mu.Unlock()
	if first && k.cfg.Ready != nil {
		k.cfg.Ready()
	}
	k.settled()
}

// removeEmptyDirs leaves the executor's directory as it was found, where nothing is in it any more.
func (k *keeper) removeEmptyDirs() {
	for _, name := range []string{journal.DirName, "containers", "libcontainer"} {
		os.Remove(filepath.Join(k.cfg.Dir, name)) // not empty: something is there that somebody may want to see
	}
}
