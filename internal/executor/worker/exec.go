//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/host/proc"
)

// execution is a process that was started in a running container.
type execution struct {
	mu    sync.Mutex
	pidfd *proc.FD      // nil: not started yet, or ended
	early []unix.Signal // came before the process was known
	told  []unix.Signal // went to the whole session
	pty   *os.File      // the master; nil: none
}

func (x *execution) signal(sig unix.Signal) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pidfd == nil {
		x.early = append(x.early, sig)
		return nil
	}
	return x.pidfd.Signal(sig)
}

// begin makes the process known. Who sees its first output may have sent it a signal before this.
func (x *execution) begin(pidfd *proc.FD) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pidfd = pidfd
	for _, sig := range x.early {
		pidfd.Signal(sig) // it may have ended
	}
	x.early = nil
}

func (x *execution) resize(width, height uint16) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pty == nil {
		return fmt.Errorf("%w: the exec has no terminal, or does not run", errdefs.ErrFailedPrecondition)
	}
	return stdio.SetSize(x.pty, width, height)
}

// exec returns the execution of that id.
func (c *container) exec(id string) (*execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.execs[id]
	if x == nil {
		return nil, fmt.Errorf("%w: container %s has no exec %q", errdefs.ErrNotFound, c.id, id)
	}
	return x, nil
}

// exec serves Exec.
func (w *Worker) exec(ctx context.Context, call *protocol.Call, req protocol.ExecRequest) (resp protocol.ExecResponse, err error) {
	c, err := w.get(req.ID)
	if err != nil {
		return resp, err
	}
	if err := checkExec(call, req); err != nil {
		return resp, err
	}
	x := &execution{}
	c.mu.Lock()
	switch {
	case c.rec.Kind != "":
		err = c.rec.checkContainer()
	case c.gone || c.rec.phase() != protocol.Running:
		err = fmt.Errorf("%w: container %s does not run (%s)", errdefs.ErrFailedPrecondition, req.ID, c.rec.phase())
	case c.execs[req.ExecID] != nil:
		err = fmt.Errorf("%w: container %s has an exec %q already", errdefs.ErrAlreadyExists, req.ID, req.ExecID)
	default:
		c.execs[req.ExecID] = x
	}
	c.mu.Unlock()
	if err != nil {
		return resp, err
	}
	defer func() {
		c.mu.Lock()
		delete(c.execs, req.ExecID)
		c.mu.Unlock()
	}()
	w.clampProcess(req.ID, req.Process)
	code, at, err := w.execIn(ctx, call, c, x, req)
	if programErr := (*spawn.ProgramError)(nil); errors.As(err, &programErr) {
		err = fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if err != nil {
		return resp, fmt.Errorf("exec in container %s: %w", req.ID, err)
	}
	return protocol.ExecResponse{Exit: protocol.Exit{Code: code, At: at}}, nil
}

func checkExec(call *protocol.Call, req protocol.ExecRequest) error {
	if !validID(req.ExecID) {
		return fmt.Errorf("%w: exec id %q: want up to 128 letters, digits and _ + . -, the first a letter or digit", errdefs.ErrInvalidArgument, req.ExecID)
	}
	if err := checkProcess(req.Process); err != nil {
		return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if req.Process.Terminal {
		return checkStreams(call, true) // the socket to which the pty's master goes
	}
	return checkStreams(call, req.Stdin, req.Stdout, req.Stderr)
}

// runExec starts the process, waits for its end, and reaps it. The process is killed when ctx ends.
func (w *Worker) runExec(ctx context.Context, call *protocol.Call, c *container, x *execution, req protocol.ExecRequest) (code int, at time.Time, err error) {
	// The process sends its own pidfd into a socket whose other end the keeper holds, before it runs anything of the
	// user's: should this worker be killed at any point, the next one finds the process there, and kills it.
	key := execPrefix + req.ID + "/" + req.ExecID
	pidSock, err := w.holdExec(ctx, key)
	if err != nil {
		return 0, at, err
	}
	cleanup := context.WithoutCancel(ctx)
	defer func() {
		if rerr := w.keeper.Release(cleanup, key); rerr != nil && w.ctx.Err() == nil {
			w.log.Warn("the keeper still holds an ended exec", "container", req.ID, "exec", req.ExecID, "err", rerr)
		}
	}()
	pid, err := w.startExec(ctx, call, c, x, req, pidSock)
	if err != nil {
		return 0, at, err
	}
	rescore(pid, req.Process)
	pidfd, err := proc.OpenFD(pid) // our unreaped child: the pid is its own
	if err != nil {
		return 0, at, err
	}
	x.begin(pidfd)
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.pidfd = nil
		pidfd.Close()
		if x.pty != nil {
			x.pty.Close()
			x.pty = nil
		}
	}()
	if err := call.Note(struct{}{}); err != nil {
		w.log.Debug("exec's caller is gone", "container", req.ID, "err", err)
	}
	stop := context.AfterFunc(ctx, func() { pidfd.Signal(unix.SIGKILL) })
	defer stop()
	if err := pidfd.Wait(w.ctx); err != nil {
		return 0, at, err
	}
	// Before it is reaped:
	w.endSession(ctx, x, c.snapshot(), pid)
	st, ok, err := pidfd.Peek()
	if err != nil || !ok {
		return 0, at, fmt.Errorf("how the process ended is not known: %w", errors.Join(err, errdefs.ErrUnknown))
	}
	return st.Code, time.Now().UTC(), pidfd.Reap()
}

// holdExec makes the socket pair for the pidfd, and returns the end for the process.
func (w *Worker) holdExec(ctx context.Context, key string) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "pidfd socket")
	defer unix.Close(fds[0])
	if err := w.keeper.Hold(ctx, hold.Holding{Key: key, Names: []string{hold.ExecSocket}}, protocol.FD(fds[0])); err != nil {
		theirs.Close()
		return nil, err
	}
	return theirs, nil
}

// startExec starts the process with the caller's descriptors as its stdio, or with a pty whose master goes to the
// caller's socket. It returns when the program has been executed.
func (w *Worker) startExec(ctx context.Context, call *protocol.Call, c *container, x *execution, req protocol.ExecRequest, pidSock *os.File) (pid int, err error) {
	defer pidSock.Close()
	process, err := newProcess(req.Process)
	if err != nil {
		return 0, err
	}
	if kept := w.keptFor(c); kept != nil && spawn.FitsExec(kept.Config(), process) == nil {
		return w.execSpawned(ctx, call, execStart{c: c, x: x, req: req, process: process, kept: kept, pidSock: pidSock})
	}
	lc, err := libcontainer.Load(w.libDir, req.ID)
	if err != nil {
		return 0, err
	}
	process.PidfdSocket = pidSock
	if !req.Process.Terminal {
		closeStdio := giveStdio(process, call, req)
		defer closeStdio()
		config := lc.Config()
		if err := ownStdio(process, &config); err != nil {
			return 0, err
		}
		if err := w.startIn(lc, c, process, req.Process); err != nil {
			return 0, err
		}
		return process.Pid()
	}
	e, err := newEnds(process, true, false)
	if err != nil {
		return 0, err
	}
	defer e.close()
	if err := w.startIn(lc, c, process, req.Process); err != nil {
		return 0, err
	}
	if pid, err = process.Pid(); err != nil {
		return 0, err
	}
	if err = e.receivePTY(); err == nil {
		err = w.passPTY(e, x, call.FDs[0])
	}
	if err != nil {
		return 0, errors.Join(err, killAndReap(pid))
	}
	return pid, nil
}

// startIn has libcontainer start a further process. A spawn.ProgramError says that only the program is at fault, which libcontainer
// tells to people only.
func (w *Worker) startIn(lc *libcontainer.Container, c *container, process *libcontainer.Process, p *specs.Process) error {
	err := lc.Start(process)
	if err != nil && !canExecute(fmt.Sprintf("/proc/%d/root", c.snapshot().PID), p, nil) {
		return &spawn.ProgramError{Text: err.Error()}
	}
	return err
}

// giveStdio makes the call's descriptors the process's stdio. A stream that is not named is /dev/null.
func giveStdio(p *libcontainer.Process, call *protocol.Call, req protocol.ExecRequest) (closeAll func()) {
	var files []*os.File
	next := func(name string) *os.File {
		fd := call.FDs[len(files)]
		unix.SetNonblock(int(fd), false) // programs do not expect a stdio that says EAGAIN
		f := fd.File(name)
		files = append(files, f)
		return f
	}
	if req.Stdin {
		p.Stdin = next("stdin")
	}
	if req.Stdout {
		p.Stdout = next("stdout")
	}
	if req.Stderr {
		p.Stderr = next("stderr")
	}
	call.FDs = nil
	return func() {
		for _, f := range files {
			f.Close()
		}
	}
}

// passPTY sends the pty's master to the caller, and keeps one to resize it.
func (w *Worker) passPTY(e *ends, x *execution, caller protocol.FD) error {
	master := e.ours[hold.PTY]
	if err := unix.Sendmsg(int(caller), []byte{0}, unix.UnixRights(int(master)), nil, 0); err != nil {
		return fmt.Errorf("send the terminal to the caller: %w", err)
	}
	delete(e.ours, hold.PTY)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pty = master.File("pty") // no more than a handle for ioctl: neither read nor polled
	return nil
}

// killTimeout bounds the wait for a killed process to end, which it does unless the kernel is stuck.
const killTimeout = 10 * time.Second

// killAndReap ends a child of this process.
func killAndReap(pid int) error {
	fd, err := proc.OpenFD(pid)
	if err != nil {
		return err
	}
	defer fd.Close()
	if err := fd.Signal(unix.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := fd.Wait(ctx); err != nil {
		return err
	}
	return fd.Reap()
}
