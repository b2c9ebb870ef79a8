//go:build cgo

package command

import (
	"context"
	"encoding/json"
	"fmt"
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
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// Exec is engine.Engine's. The process is a sitter's child, which kills it, with its session, when this worker dies.
func (c *runner) Exec(ctx context.Context, start engine.Further) (code int, at time.Time, err error) {
	x, rec, req := start.Execution, start.Container.Record(), start.Request
	dir, err := os.MkdirTemp(filepath.Dir(c.file(rec.ID, "x")), "exec-")
	if err != nil {
		return 0, at, err
	}
	defer os.RemoveAll(dir)
	s, console, err := c.begin(start.Call, rec, req, dir)
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
	x.Begin(pidfd)
	defer x.End()
	if req.Process.Terminal {
		master, err := console.receive()
		if err != nil {
			return 0, at, err
		}
		if err := x.PassPTY(master, start.Call.FDs[0]); err != nil {
			return 0, at, err
		}
	}
	if err := start.Call.Note(struct{}{}); err != nil {
		c.cfg.Log.Debug("exec's caller is gone", "container", rec.ID, "error", err)
	}
	stop := context.AfterFunc(ctx, func() { pidfd.Signal(unix.SIGKILL) })
	defer stop()
	if code, err = s.Ended(c.ctx); err != nil {
		return 0, at, err
	}
	at = time.Now().UTC()
	// Before it is reaped:
	x.EndSession(ctx, c.cfg.Log, rec, pid)
	return code, at, s.Release()
}

// begun waits until the runtime's command has left the process.
func (c *runner) begun(ctx context.Context, s *sitter.Sitter, rec record.Record, req protocol.ExecRequest, dir string) (*proc.FD, error) {
	ctx, cancel := context.WithTimeout(ctx, c.of.timeout())
	defer cancel()
	pid, err := s.Left(ctx)
	if err != nil {
		err = c.failure(rec, "exec", err, filepath.Join(dir, "log"))
		return nil, c.of.explain(ctx, err, "--process", filepath.Join(dir, "process.json"), "--pid", strconv.Itoa(rec.PID))
	}
	pidfd, err := proc.OpenFD(pid) // the sitter does not reap it: the pid is its own
	if err != nil {
		return nil, err
	}
	if stat, err := proc.ReadStat(pid); err != nil || stat.PPID != s.Pid() {
		pidfd.Close()
		return nil, fmt.Errorf("%w: %s exec: process %d, which its pid file names, is not one that it has left: %v", errdefs.ErrInternal, c.of.name(rec), pid, err)
	}
	return pidfd, nil
}

// begin starts the runtime's command with the caller's descriptors as its stdio, or with a console.
func (c *runner) begin(call *protocol.Call, rec record.Record, req protocol.ExecRequest, dir string) (*sitter.Sitter, *ociConsole, error) {
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
	cfg.Args = slices.Concat(c.program(rec, filepath.Join(dir, "log")), args, []string{string(rec.ID)})
	s, err := sitter.Start(cfg)
	if err != nil {
		console.close()
		return nil, nil, err
	}
	return s, console, nil
}

// ownStdio is ownStdio for a container that another worker may have made.
func (c *runner) ownStdio(rec record.Record, stdio [3]*os.File) error {
	spec, seccomp, err := bundle.Load(rec.Bundle)
	if err != nil {
		return err
	}
	config, err := c.cfg.Specs.Config(rec.ID, rec.Bundle, spec, seccomp)
	if err != nil {
		return err
	}
	return engine.OwnStdio(&libcontainer.Process{Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2]}, config)
}

// rescore gives an exec's process its own oom_score_adj: it starts with the one that the container was made with, which may
// have been changed since. pid is an unreaped child's. A process that has ended meanwhile needs none.
func rescore(pid int, p *specs.Process) {
	if p.OOMScoreAdj != nil {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(*p.OOMScoreAdj)), 0)
	}
}
