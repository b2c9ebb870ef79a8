//go:build cgo

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/sitter"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/host/proc"
)

// execIn runs an exec as the container was made: natively, or by its runtime.
func (w *Worker) execIn(ctx context.Context, call *protocol.Call, c *container, x *execution, req protocol.ExecRequest) (code int, at time.Time, err error) {
	if rec := c.snapshot(); rec.Runtime != nil {
		return w.runOCIExec(ctx, call, x, rec, req)
	}
	return w.runExec(ctx, call, c, x, req)
}

// runOCIExec is runExec for a container of an OCI runtime. The process is a sitter's child, which kills it, with its session, when
// this worker dies.
func (w *Worker) runOCIExec(ctx context.Context, call *protocol.Call, x *execution, rec record, req protocol.ExecRequest) (code int, at time.Time, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(w.ociFile(rec.ID, "x")), "exec-")
	if err != nil {
		return 0, at, err
	}
	defer os.RemoveAll(dir)
	s, console, err := w.startOCIExec(call, rec, req, dir)
	if err != nil {
		return 0, at, err
	}
	defer s.Close()
	defer console.close()
	pidfd, err := w.ociExecStarted(ctx, s, rec, req, dir)
	if err != nil {
		return 0, at, err
	}
	defer pidfd.Close()
	pid := pidfd.PID()
	rescore(pid, req.Process)
	x.begin(pidfd)
	defer x.end()
	if req.Process.Terminal {
		if err := w.passConsole(console, x, call.FDs[0]); err != nil {
			return 0, at, err
		}
	}
	if err := call.Note(struct{}{}); err != nil {
		w.log.Debug("exec's caller is gone", "container", rec.ID, "err", err)
	}
	stop := context.AfterFunc(ctx, func() { pidfd.Signal(unix.SIGKILL) })
	defer stop()
	if code, err = s.Ended(w.ctx); err != nil {
		return 0, at, err
	}
	at = time.Now().UTC()
	// Before it is reaped:
	w.endSession(ctx, x, rec, pid)
	return code, at, s.Release()
}

// endSession does to the rest of an exec's session what was done to its first process, which has ended and is not reaped.
func (w *Worker) endSession(ctx context.Context, x *execution, rec record, pid int) {
	if err := x.tellRest(rec.Cgroups, pid); err != nil {
		w.log.Warn("processes of a command that was hung up may go on", "container", rec.ID, "err", err)
	}
	if ctx.Err() == nil {
		return
	}
	if err := killSession(ctx, rec.Cgroups, pid); err != nil {
		w.log.Warn("processes of a command that was killed may go on", "container", rec.ID, "err", err)
	}
}

// ociExecStarted waits until the runtime's command has left the process.
func (w *Worker) ociExecStarted(ctx context.Context, s *sitter.Sitter, rec record, req protocol.ExecRequest, dir string) (*proc.FD, error) {
	ctx, cancel := context.WithTimeout(ctx, ociTimeout)
	defer cancel()
	pid, err := s.Left(ctx)
	if err != nil {
		err = fmt.Errorf("%s exec: %w%s", rec.Runtime.Path, err, ociMessage(filepath.Join(dir, "log")))
		if errors.Is(err, sitter.ErrCommand) && !canExecute(fmt.Sprintf("/proc/%d/root", rec.PID), req.Process, nil) {
			err = &spawn.ProgramError{Text: err.Error()}
		}
		return nil, err
	}
	pidfd, err := proc.OpenFD(pid) // the sitter does not reap it: the pid is its own
	if err != nil {
		return nil, err
	}
	if stat, err := proc.ReadStat(pid); err != nil || stat.PPID != s.Pid() {
		pidfd.Close()
		return nil, fmt.Errorf("%w: %s exec: process %d, which its pid file names, is not one that it has left: %v", errdefs.ErrInternal, rec.Runtime.Path, pid, err)
	}
	return pidfd, nil
}

// end forgets the process, before its pidfd is closed.
func (x *execution) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pidfd = nil
	if x.pty != nil {
		x.pty.Close()
		x.pty = nil
	}
}

// startOCIExec starts the runtime's command with the caller's descriptors as its stdio, or with a console.
func (w *Worker) startOCIExec(call *protocol.Call, rec record, req protocol.ExecRequest, dir string) (*sitter.Sitter, *ociConsole, error) {
	raw, err := json.Marshal(req.Process)
	if err != nil {
		return nil, nil, err
	}
	process, pidFile := filepath.Join(dir, "process.json"), filepath.Join(dir, "pid")
	if err := os.WriteFile(process, raw, 0o600); err != nil {
		return nil, nil, err
	}
	args := []string{"exec", "--process", process, "--detach", "--pid-file", pidFile}
	cfg := sitter.Config{Env: ociEnv, PIDFile: pidFile}
	var console *ociConsole
	if req.Process.Terminal {
		if console, err = w.newConsole(); err != nil {
			return nil, nil, err
		}
		args = append(args, "--console-socket", console.path)
	} else {
		for i, named := range []bool{req.Stdin, req.Stdout, req.Stderr} {
			if named {
				fd := call.FDs[0]
				call.FDs = call.FDs[1:]
				unix.SetNonblock(int(fd), false) // programs do not expect a stdio that says EAGAIN
				cfg.Stdio[i] = fd.File("stdio")
				defer cfg.Stdio[i].Close()
			}
		}
		if err := w.ownOCIStdio(rec, cfg.Stdio); err != nil {
			return nil, nil, err
		}
	}
	cfg.Args = w.ociArgs(rec, filepath.Join(dir, "log"), append(args, rec.ID)...)
	s, err := sitter.Start(cfg)
	if err != nil {
		console.close()
		return nil, nil, err
	}
	return s, console, nil
}

// ownOCIStdio is ownStdio for a container that another worker may have made.
func (w *Worker) ownOCIStdio(rec record, stdio [3]*os.File) error {
	spec, seccomp, err := loadSpec(rec.Bundle)
	if err != nil {
		return err
	}
	config, err := w.libcontainerConfig(rec.ID, rec.Bundle, spec, seccomp)
	if err != nil {
		return err
	}
	return ownStdio(&libcontainer.Process{Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2]}, config)
}

// passConsole takes the pty's master from the runtime, sends it to the caller, and keeps one to resize it.
func (w *Worker) passConsole(console *ociConsole, x *execution, caller protocol.FD) error {
	e := emptyEnds()
	defer e.close()
	if err := console.receive(e); err != nil {
		return err
	}
	return w.passPTY(e, x, caller)
}

// ociConsole is a socket to which a runtime sends a pty's master.
type ociConsole struct {
	dir, path string
	l         *net.UnixListener
}

// consolePrefix begins the names of the sockets' directories, in the executor's: a socket's path must be short.
const consolePrefix = "pty-"

func (w *Worker) newConsole() (*ociConsole, error) {
	dir, err := os.MkdirTemp(w.cfg.Dir, consolePrefix)
	if err != nil {
		return nil, err
	}
	c := &ociConsole{dir: dir, path: filepath.Join(dir, "s")}
	if c.l, err = net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"}); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return c, nil
}

// close is for a console that is nil too.
func (c *ociConsole) close() {
	if c != nil {
		c.l.Close()
		os.RemoveAll(c.dir)
	}
}

// receive takes the master. The runtime has ended, so it has sent it.
func (c *ociConsole) receive(e *ends) error {
	c.l.SetDeadline(time.Now().Add(time.Second))
	conn, err := c.l.AcceptUnix()
	if err != nil {
		return fmt.Errorf("receive the terminal: %w", err)
	}
	defer conn.Close()
	f, err := conn.File()
	if err != nil {
		return err
	}
	defer f.Close()
	fd, err := receiveFD(protocol.FD(f.Fd()))
	if err != nil {
		return fmt.Errorf("receive the terminal: %w", err)
	}
	e.ours[hold.PTY] = fd
	return nil
}

// removeConsoles removes what a worker that was killed has left.
func (w *Worker) removeConsoles() {
	left, err := filepath.Glob(filepath.Join(w.cfg.Dir, consolePrefix+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		w.log.Warn("sockets of consoles stay behind", "err", err)
	}
}

// parent is the process that reaps a container's first one, as it is created: this one, or, for one that an OCI runtime has
// made and left, the keeper.
func (w *Worker) parent(rec record) int {
	if rec.Runtime != nil {
		return w.keeperPID
	}
	return os.Getpid()
}

// readStatOf reads the stat of a container's first process.
func readStatOf(rec record) (proc.Stat, error) {
	stat, err := proc.ReadStat(rec.PID)
	if err == nil && stat.StartTime != rec.StartTime {
		err = fmt.Errorf("%w: process %d", errdefs.ErrNotFound, rec.PID)
	}
	return stat, err
}
