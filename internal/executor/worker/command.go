//go:build cgo

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/sitter"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// commands makes containers by the command line of OCI runtimes. A container is held, watched, logged and told of as a
// native one. What the runtime is handed lies beside the container's record: its bundle, pid files, logs of its own.
//
// Its first process is the keeper's child from the begin. No command of a runtime outlives its worker: a sitter kills it,
// and the next worker waits for that (the lock) before it undoes or repeats anything.
type commands struct {
	ctx       context.Context // ends with the worker
	own       *ownRuntime     // nil: each container names its own
	patience  time.Duration   // bounds one command of ours, which takes some tens of milliseconds, and the hooks that it runs
	records   *record.Store
	dir       string // for the sockets of consoles
	keeperPID int
	specs     *bundle.Reader
	hugepages group.Hugepages
	log       *slog.Logger
}

// ownRuntime is the command line of package ocicmd, in this program.
type ownRuntime struct{ root string }

const (
	// ociTimeout bounds one command of a runtime.
	ociTimeout = 2 * time.Minute
	// ociLockTimeout bounds the wait for a dead worker's command to be killed.
	ociLockTimeout = 10 * time.Second
	// findTimeout bounds the search for the reason of a failure.
	findTimeout = 5 * time.Second
)

func (c *commands) timeout() time.Duration {
	if c.own != nil {
		return c.patience
	}
	return ociTimeout
}

// checkRuntime checks what a Create asks for.
func checkRuntime(req protocol.CreateRequest) error {
	r := req.Runtime
	if r == nil {
		return nil
	}
	for name, path := range map[string]string{"path": r.Path, "root": r.Root} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%w: container %s: runtime.%s is %q, want an absolute path", errdefs.ErrInvalidArgument, req.ID, name, path)
		}
	}
	return nil
}

// sameRuntime reports whether two containers are made in the same way.
func sameRuntime(a, b *protocol.OCIRuntime) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// ociEnv is a runtime's environment: it looks for its helpers in the path.
var ociEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// ownCommand is this program's command line of an OCI runtime.
var ownCommand = []string{"/proc/self/exe", "oci"}

// program is a runtime's command line up to its command, with a log of its own, which is emptied.
func (c *commands) program(rec record.Record, log string) []string {
	os.Remove(log)
	options := []string{"--log", log, "--log-format", "json"}
	if c.own != nil {
		return slices.Concat(ownCommand, []string{"--root", c.own.root}, options)
	}
	return slices.Concat([]string{rec.Runtime.Path, "--root", rec.Runtime.Root}, options)
}

// name is how the runtime is called in errors.
func (c *commands) name(rec record.Record) string {
	if c.own != nil {
		return "libcontainer"
	}
	return rec.Runtime.Path
}

// run runs a command that changes the container, and returns when it has ended. A spawn.ProgramError says that it has failed for the
// program, or a poststart hook.
func (c *commands) run(ctx context.Context, rec record.Record, stdio [3]*os.File, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	lock, err := c.lock(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer lock.Close()
	log := c.records.File(rec.ID, "oci-"+args[0]+".log")
	s, err := sitter.Start(sitter.Config{Args: append(c.program(rec, log), args...), Env: ociEnv, Stdio: stdio, Lock: lock})
	if err != nil {
		return err
	}
	code, err := s.Ended(ctx)
	if cerr := s.Close(c.ctx); err == nil {
		err = cerr
	}
	if err == nil && code != 0 {
		err = &sitter.CommandError{Code: code}
	}
	if err != nil {
		return c.failure(rec, args[0], err, log)
	}
	return nil
}

// failure is what a command's error means.
func (c *commands) failure(rec record.Record, command string, err error, log string) error {
	var failed *sitter.CommandError
	isProgram := c.own != nil && errors.As(err, &failed) && failed.Code == ocicmd.CodeProgram
	err = fmt.Errorf("%s %s: %w%s", c.name(rec), command, err, ociMessage(log))
	if isProgram {
		return &spawn.ProgramError{Text: err.Error()}
	}
	return err
}

// explain finds out, of an OCI runtime that has failed, whether the program was the reason: runtimes tell that to people only.
func (c *commands) explain(ctx context.Context, err error, args ...string) error {
	if c.own != nil || !errors.Is(err, sitter.ErrCommand) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	s, serr := sitter.Start(sitter.Config{Args: slices.Concat(ownCommand, []string{"--root", c.dir, "executable"}, args), Env: ociEnv})
	if serr != nil {
		return err
	}
	defer s.Close(c.ctx)
	if code, serr := s.Ended(ctx); serr == nil && code == ocicmd.CodeProgram {
		return &spawn.ProgramError{Text: err.Error()}
	}
	return err
}

// lock takes the container's lock, which the sitter of a dead worker may still hold.
func (c *commands) lock(ctx context.Context, id string) (*os.File, error) {
	path := c.records.File(id, "oci.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() { locked <- flock(f) }()
	select {
	case err = <-locked:
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(ociLockTimeout):
		err = fmt.Errorf("%w: a command of the runtime still runs", context.DeadlineExceeded)
	}
	if err != nil {
		go func() { <-locked; f.Close() }() // not before flock has returned: the number could be somebody else's by then
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func flock(f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = rc.Control(func(fd uintptr) {
		for {
			if ferr = unix.Flock(int(fd), unix.LOCK_EX); !errors.Is(ferr, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, ferr)
}

const (
	// ociLogLimit bounds what is read of a runtime's log: with JSON's escapes, six times what a reason of ours may have, and more.
	ociLogLimit = 64 << 10
	// ociMessageLimit bounds what of it becomes part of an error.
	ociMessageLimit = 4 << 10
)

// ociMessage returns the last error in a runtime's log, after a colon.
func ociMessage(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	raw = raw[max(0, len(raw)-ociLogLimit):]
	last := ""
	for line := range bytes.Lines(raw) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg != "" && (entry.Level == "error" || entry.Level == "fatal") {
			last = entry.Msg
		}
	}
	if last == "" {
		return ""
	}
	if len(last) > ociMessageLimit {
		last = strings.ToValidUTF8(last[:ociMessageLimit], "") + "..."
	}
	return ": " + last
}

func (c *commands) create(ctx context.Context, s initStart) (*ends, error) {
	dir, err := c.bundle(*s.rec)
	if err != nil {
		return nil, err
	}
	spec := *s.spec
	spec.Process = withOwnLimits(spec.Process)
	if err := writeBundle(dir, bundle.Whole(&spec, s.seccomp)); err != nil {
		return nil, err
	}
	e, err := newEnds(s.process, s.stdin && !s.rec.Terminal)
	if err != nil {
		return nil, err
	}
	if err := ownStdio(s.process, s.config); err != nil {
		return e, err
	}
	pidFile := c.records.File(s.rec.ID, "init.pid")
	args := []string{"create", "--bundle", dir, "--pid-file", pidFile}
	if c.own != nil {
		args = append(args, "--hooks-bundle", s.rec.Bundle)
	}
	var stdio [3]*os.File
	var console *ociConsole
	if s.rec.Terminal {
		e.close()
		e = emptyEnds()
		if console, err = c.newConsole(); err != nil {
			return e, err
		}
		defer console.close()
		args = append(args, "--console-socket", console.path)
	} else {
		stdio = e.stdio()
	}
	if err := c.run(ctx, *s.rec, stdio, append(args, s.rec.ID)...); err != nil {
		return e, c.explain(ctx, err, "--bundle", dir)
	}
	e.closeTheirs()
	if err := failpoint.Hit("executor/worker/oci/created"); err != nil {
		return e, err
	}
	if s.rec.PID, err = readPID(pidFile); err != nil {
		return e, err
	}
	if console != nil {
		return e, console.receive(e)
	}
	return e, nil
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

// bundle is where the bundle of our own is written. Hooks read it too, unless the runtime is our own and tells them the container's: those of a container with a
// user namespace as an ordinary user of the host, who passes the container's directory by its group, and comes to no record.
func (c *commands) bundle(rec record.Record) (string, error) {
	if c.own == nil {
		st, err := os.Stat(rec.Bundle)
		if err != nil {
			return "", err
		}
		if gid := st.Sys().(*syscall.Stat_t).Gid; gid != 0 {
			dir := bundleInside(rec)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return "", err
			}
			return dir, private.Group(dir, gid)
		}
	}
	return c.records.File(rec.ID, "bundle"), nil
}

func bundleInside(rec record.Record) string { return filepath.Join(rec.Bundle, "oci-"+rec.ID) }

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

// start lets the first process run its program. That it runs already is no error: a command of a dead worker may have
// done it.
func (c *commands) start(ctx context.Context, made *container, rec record.Record) (executed bool, err error) {
	if err := c.run(ctx, rec, [3]*os.File{}, "start", rec.ID); err != nil {
		if stat, serr := readStatOf(rec); serr != nil || !stat.Executed() {
			return false, err
		}
	}
	if err := failpoint.Hit("executor/worker/oci/started"); err != nil {
		return false, err
	}
	return awaitExecution(ctx, made.ended, rec.PID, rec.StartTime)
}

// waits is true of all: only a runtime itself knows how its containers wait.
func (c *commands) waits(record.Record) bool { return true }

func (c *commands) released(record.Record) {}

// remove removes what the runtime has of a container. It is not there before Create got far, and after an earlier delete.
func (c *commands) remove(ctx context.Context, rec record.Record) error {
	if c.own != nil {
		if _, err := os.Lstat(filepath.Join(c.own.root, rec.ID)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return c.run(ctx, rec, [3]*os.File{}, "delete", "--force", rec.ID)
	}
	if err := c.removeTheirs(ctx, rec); err != nil {
		return err
	}
	return os.RemoveAll(bundleInside(rec))
}

// removeTheirs has the container's runtime remove it.
func (c *commands) removeTheirs(ctx context.Context, rec record.Record) error {
	err := c.run(ctx, rec, [3]*os.File{}, "delete", "--force", rec.ID)
	if err == nil {
		return nil
	}
	if _, serr := os.Stat(rec.Runtime.Path); errors.Is(serr, fs.ErrNotExist) {
		c.log.Warn("the OCI runtime of a container is gone; what it has stored of it is removed", "container", rec.ID, "runtime", rec.Runtime.Path)
		return os.RemoveAll(filepath.Join(rec.Runtime.Root, rec.ID))
	}
	if serr := c.run(ctx, rec, [3]*os.File{}, "state", rec.ID); errors.Is(serr, sitter.ErrCommand) {
		return nil // it does not know the container
	}
	return err
}

// parent is the keeper: a runtime's command leaves the process behind.
func (c *commands) parent() int { return c.keeperPID }

// signal sends a signal to the first process as its runtime sees it, which need not be the one that the host sees.
func (c *commands) signal(ctx context.Context, rec record.Record, fd *proc.FD, sig unix.Signal) error {
	if sig == 0 || rec.Phase() != protocol.Running {
		return fd.Signal(sig)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	log := c.records.File(rec.ID, "oci-kill.log")
	s, err := sitter.Start(sitter.Config{Args: append(c.program(rec, log), "kill", rec.ID, strconv.Itoa(int(sig))), Env: ociEnv})
	if err != nil {
		return err
	}
	defer s.Close(c.ctx)
	code, err := s.Ended(ctx)
	if err == nil && code != 0 {
		err = &sitter.CommandError{Code: code}
	}
	if err != nil && !isDead(rec) { // it may have ended meanwhile
		return c.failure(rec, "kill", err, log)
	}
	return nil
}

// update sets resources through the runtime, so that it knows them too.
func (c *commands) update(ctx context.Context, rec record.Record, change resourceChange) error {
	raw, err := json.Marshal(change.whole)
	if err != nil {
		return err
	}
	path := c.records.File(rec.ID, "resources.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.run(ctx, rec, [3]*os.File{f}, "update", "--resources", "-", rec.ID); err != nil {
		return err
	}
	return c.hugepages.LimitAgain(rec.Cgroups, change.hugepages)
}
