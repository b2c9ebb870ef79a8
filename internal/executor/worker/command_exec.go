//go:build cgo

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/sitter"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// exec runs a further process, a sitter's child, which kills it, with its session, when this worker dies.
func (c *commands) exec(ctx context.Context, start execStart) (code int, at time.Time, err error) {
	x, rec, req := start.x, start.c.snapshot(), start.req
	dir, err := os.MkdirTemp(filepath.Dir(c.records.File(rec.ID, "x")), "exec-")
	if err != nil {
		return 0, at, err
	}
	defer os.RemoveAll(dir)
	s, console, err := c.begin(start.call, rec, req, dir)
	if err != nil {
		return 0, at, err
	}
	defer s.Close(c.ctx)
	defer console.close()
	pidfd, err := c.begun(ctx, s, rec, req, dir)
	if err != nil {
		return 0, at, err
	}
	defer pidfd.Close()
	pid := pidfd.PID()
	rescore(pid, req.Process)
	x.begin(pidfd)
	defer x.end()
	if req.Process.Terminal {
		if err := x.passConsole(console, start.call.FDs[0]); err != nil {
			return 0, at, err
		}
	}
	if err := start.call.Note(struct{}{}); err != nil {
		c.log.Debug("exec's caller is gone", "container", rec.ID, "error", err)
	}
	stop := context.AfterFunc(ctx, func() { pidfd.Signal(unix.SIGKILL) })
	defer stop()
	if code, err = s.Ended(c.ctx); err != nil {
		return 0, at, err
	}
	at = time.Now().UTC()
	// Before it is reaped:
	x.endSession(ctx, c.log, rec, pid)
	return code, at, s.Release()
}

// endSession does to the rest of an exec's session what was done to its first process, which has ended and is not reaped.
func (x *execution) endSession(ctx context.Context, log *slog.Logger, rec record.Record, pid int) {
	if err := x.tellRest(rec.Group(), pid); err != nil {
		log.Warn("processes of a command that was hung up may go on", "container", rec.ID, "error", err)
	}
	if ctx.Err() == nil {
		return
	}
	if err := killSession(ctx, rec.Group(), pid); err != nil {
		log.Warn("processes of a command that was killed may go on", "container", rec.ID, "error", err)
	}
}

// begun waits until the runtime's command has left the process.
func (c *commands) begun(ctx context.Context, s *sitter.Sitter, rec record.Record, req protocol.ExecRequest, dir string) (*proc.FD, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	pid, err := s.Left(ctx)
	if err != nil {
		err = c.failure(rec, "exec", err, filepath.Join(dir, "log"))
		return nil, c.explain(ctx, err, "--process", filepath.Join(dir, "process.json"), "--pid", strconv.Itoa(rec.PID))
	}
	pidfd, err := proc.OpenFD(pid) // the sitter does not reap it: the pid is its own
	if err != nil {
		return nil, err
	}
	if stat, err := proc.ReadStat(pid); err != nil || stat.PPID != s.Pid() {
		pidfd.Close()
		return nil, fmt.Errorf("%w: %s exec: process %d, which its pid file names, is not one that it has left: %v", errdefs.ErrInternal, c.name(rec), pid, err)
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

// begin starts the runtime's command with the caller's descriptors as its stdio, or with a console.
func (c *commands) begin(call *protocol.Call, rec record.Record, req protocol.ExecRequest, dir string) (*sitter.Sitter, *ociConsole, error) {
	raw, err := json.Marshal(req.Process) // its limits are the container's where it names none
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
		if console, err = c.newConsole(); err != nil {
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
		if err := c.ownStdio(rec, cfg.Stdio); err != nil {
			return nil, nil, err
		}
	}
	cfg.Args = slices.Concat(c.program(rec, filepath.Join(dir, "log")), args, []string{rec.ID})
	s, err := sitter.Start(cfg)
	if err != nil {
		console.close()
		return nil, nil, err
	}
	return s, console, nil
}

// ownStdio is ownStdio for a container that another worker may have made.
func (c *commands) ownStdio(rec record.Record, stdio [3]*os.File) error {
	spec, seccomp, err := bundle.Load(rec.Bundle)
	if err != nil {
		return err
	}
	config, err := c.specs.Config(rec.ID, rec.Bundle, spec, seccomp)
	if err != nil {
		return err
	}
	return ownStdio(&libcontainer.Process{Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2]}, config)
}

// passConsole takes the pty's master from the runtime, sends it to the caller, and keeps one to resize it.
func (x *execution) passConsole(console *ociConsole, caller protocol.FD) error {
	e := emptyEnds()
	defer e.close()
	if err := console.receive(e); err != nil {
		return err
	}
	return x.passPTY(e, caller)
}

// readStatOf reads the stat of a container's first process.
func readStatOf(rec record.Record) (proc.Stat, error) {
	stat, err := proc.ReadStat(rec.PID)
	if err == nil && stat.StartTime != rec.StartTime {
		err = fmt.Errorf("%w: process %d", errdefs.ErrNotFound, rec.PID)
	}
	return stat, err
}

// rescore gives an exec's process its own oom_score_adj: it starts with the one that the container was made with, which may
// have been changed since. pid is an unreaped child's. A process that has ended meanwhile needs none.
func rescore(pid int, p *specs.Process) {
	if p.OOMScoreAdj != nil {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(*p.OOMScoreAdj)), 0)
	}
}
