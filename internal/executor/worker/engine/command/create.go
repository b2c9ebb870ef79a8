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
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// create has the runtime create a container from a bundle of ours in dir.
func (c *runner) create(ctx context.Context, s engine.Initial, dir string, options ...string) (made engine.Made, err error) {
	made.Parent = c.cfg.KeeperPID // a runtime's command leaves the process behind
	spec := *s.Spec
	spec.Process = withOwnLimits(spec.Process)
	if err := writeBundle(dir, bundle.Whole(&spec, s.Seccomp)); err != nil {
		return made, err
	}
	e, err := engine.NewEnds(s.Process, s.Stdin && !s.Record.Terminal)
	if err != nil {
		return made, err
	}
	made.Ends = e
	if err := engine.OwnStdio(s.Process, s.Config); err != nil {
		return made, err
	}
	pidFile := c.file(s.Record.ID, "init.pid")
	args := append([]string{"create", "--bundle", dir, "--pid-file", pidFile}, options...)
	var stdio [3]*os.File
	var console *ociConsole
	if s.Record.Terminal {
		e.Close()
		e = engine.NoEnds()
		made.Ends = e
		if console, err = c.newConsole(); err != nil {
			return made, err
		}
		defer console.close()
		args = append(args, "--console-socket", console.path)
	} else {
		stdio = e.Stdio()
	}
	if err := c.run(ctx, s.Record, stdio, append(args, string(s.Record.ID))...); err != nil {
		return made, c.of.explain(ctx, err, "--bundle", dir)
	}
	e.CloseTheirs()
	if err := failpoint.Hit("executor/worker/oci/created"); err != nil {
		return made, err
	}
	if made.PID, err = readPID(pidFile); err != nil {
		return made, err
	}
	if console != nil {
		e.Ours[hold.PTY], err = console.receive()
		if err != nil {
			delete(e.Ours, hold.PTY)
		}
	}
	return made, err
}

// withOwnLimits adds the limits that this process has changed for itself, as they were: what a runtime's command inherits is not the
// container's.
func withOwnLimits(p *specs.Process) *specs.Process {
	out := *p
	out.Rlimits = slices.Clone(p.Rlimits)
	for _, own := range spawn.OwnLimits() {
		for name, n := range ocicmd.Rlimits {
			if n == own.Type && !slices.ContainsFunc(p.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == name }) {
				out.Rlimits = append(out.Rlimits, specs.POSIXRlimit{Type: name, Soft: own.Soft, Hard: own.Hard})
			}
		}
	}
	return &out
}

// writeBundle writes a bundle of our own, with what this host clamps, and with absolute paths. Who may pass its directory may read it.
func writeBundle(dir string, spec bundle.Spec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	config := filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if gid := st.Sys().(*syscall.Stat_t).Gid; gid != 0 {
		return private.GroupReads(config, gid)
	}
	return nil
}

func readPID(path string) (int, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("%s: %q is no pid", path, raw)
	}
	return pid, nil
}
