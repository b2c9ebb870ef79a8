//go:build cgo

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/sitter"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/failpoint"
)

// A container of an OCI runtime is made by that runtime's command line, and is held, watched, logged and told of as a
// native one. What the runtime is handed lies beside the container's record: its bundle, pid files, logs of its own.
//
// Its first process is the keeper's child from the begin. No command of a runtime outlives its worker: a sitter kills it,
// and the next worker waits for that (the lock) before it undoes or repeats anything.

const (
	// ociTimeout bounds one command of a runtime.
	ociTimeout = 2 * time.Minute
	// ociLockTimeout bounds the wait for a dead worker's command to be killed.
	ociLockTimeout = 10 * time.Second
)

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

func (w *Worker) ociFile(id, name string) string { return filepath.Join(w.store.dir, id, name) }

// ociEnv is a runtime's environment: it looks for its helpers in the path.
var ociEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// ociArgs is the command line of a runtime, with a log of its own, which is emptied.
func (w *Worker) ociArgs(rec record, log string, args ...string) []string {
	os.Remove(log)
	return append([]string{rec.Runtime.Path, "--root", rec.Runtime.Root, "--log", log, "--log-format", "json"}, args...)
}

// ociRun runs a command that changes the container, and returns when it has ended.
func (w *Worker) ociRun(ctx context.Context, rec record, stdio [3]*os.File, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, ociTimeout)
	defer cancel()
	lock, err := w.ociLock(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer lock.Close()
	log := w.ociFile(rec.ID, "oci-"+args[0]+".log")
	s, err := sitter.Start(sitter.Config{Args: w.ociArgs(rec, log, args...), Env: ociEnv, Stdio: stdio, Lock: lock})
	if err != nil {
		return err
	}
	code, err := s.Ended(ctx)
	s.Close()
	if err == nil && code != 0 {
		err = fmt.Errorf("%w: exit code %d", sitter.ErrCommand, code)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w%s", rec.Runtime.Path, args[0], err, ociMessage(log))
	}
	return nil
}

// ociLock takes the container's lock, which the sitter of a dead worker may still hold.
func (w *Worker) ociLock(ctx context.Context, id string) (*os.File, error) {
	path := w.ociFile(id, "oci.lock")
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

// ociMessageLimit bounds what is read of a runtime's log, and what of it becomes part of an error.
const ociMessageLimit = 4 << 10

// ociMessage returns the last error in a runtime's log, after a colon.
func ociMessage(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	raw = raw[max(0, len(raw)-ociMessageLimit):]
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
	return ": " + last
}

// startOCI makes a container up to where its first process waits to be let go. A spawn.ProgramError says that the program is at fault.
func (w *Worker) startOCI(ctx context.Context, s initStart) (*ends, error) {
	bundle := w.ociFile(s.rec.ID, "bundle")
	if err := writeBundle(bundle, s.spec); err != nil {
		return nil, err
	}
	e, err := newEnds(s.process, false, s.stdin && !s.rec.Terminal)
	if err != nil {
		return nil, err
	}
	if err := ownStdio(s.process, s.config); err != nil {
		return e, err
	}
	pidFile := w.ociFile(s.rec.ID, "init.pid")
	args := []string{"create", "--bundle", bundle, "--pid-file", pidFile}
	var stdio [3]*os.File
	var console *ociConsole
	if s.rec.Terminal {
		e.close()
		e = emptyEnds()
		if console, err = w.newConsole(); err != nil {
			return e, err
		}
		defer console.close()
		args = append(args, "--console-socket", console.path)
	} else {
		stdio = e.stdio()
	}
	if err := w.ociRun(ctx, *s.rec, stdio, append(args, s.rec.ID)...); err != nil {
		if errors.Is(err, sitter.ErrCommand) && !canExecute(s.spec.Root.Path, s.spec.Process, s.spec.Mounts) {
			err = &spawn.ProgramError{Text: err.Error()}
		}
		return e, err
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

// writeBundle writes a bundle of our own, with what this host clamps, and with absolute paths.
func writeBundle(dir string, spec *specs.Spec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600)
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

// letGoOCI lets the first process run its program. That it runs already is no error: a command of a dead worker may have
// done it.
func (w *Worker) letGoOCI(ctx context.Context, c *container, rec record) (executed bool, err error) {
	if err := w.ociRun(ctx, rec, [3]*os.File{}, "start", rec.ID); err != nil {
		if stat, serr := readStatOf(rec); serr != nil || !stat.Executed() {
			return false, err
		}
	}
	if err := failpoint.Hit("executor/worker/oci/started"); err != nil {
		return false, err
	}
	return awaitExecution(c.ended, rec.PID, rec.StartTime)
}

// deleteOCI removes what the runtime has of a container. It is not there before Create got far, and after an earlier delete.
func (w *Worker) deleteOCI(ctx context.Context, rec record) error {
	if rec.Runtime == nil {
		return nil
	}
	err := w.ociRun(ctx, rec, [3]*os.File{}, "delete", "--force", rec.ID)
	if err == nil {
		return nil
	}
	if _, serr := os.Stat(rec.Runtime.Path); errors.Is(serr, fs.ErrNotExist) {
		w.log.Warn("the OCI runtime of a container is gone; what it has stored of it is removed", "container", rec.ID, "runtime", rec.Runtime.Path)
		return os.RemoveAll(filepath.Join(rec.Runtime.Root, rec.ID))
	}
	if serr := w.ociRun(ctx, rec, [3]*os.File{}, "state", rec.ID); errors.Is(serr, sitter.ErrCommand) {
		return nil // it does not know the container
	}
	return err
}

// signalOCI sends a signal to the first process as its runtime sees it, which need not be the one that the host sees.
func (w *Worker) signalOCI(ctx context.Context, rec record, sig unix.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, ociTimeout)
	defer cancel()
	log := w.ociFile(rec.ID, "oci-kill.log")
	s, err := sitter.Start(sitter.Config{Args: w.ociArgs(rec, log, "kill", rec.ID, strconv.Itoa(int(sig))), Env: ociEnv})
	if err != nil {
		return err
	}
	defer s.Close()
	code, err := s.Ended(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("%w: exit code %d", sitter.ErrCommand, code)
	}
	if err != nil && !isDead(rec) { // it may have ended meanwhile
		return fmt.Errorf("%s kill: %w%s", rec.Runtime.Path, err, ociMessage(log))
	}
	return nil
}

// updateOCI sets resources through the runtime, so that it knows them too.
func (w *Worker) updateOCI(ctx context.Context, rec record, change *specs.LinuxResources) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return err
	}
	path := w.ociFile(rec.ID, "resources.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.ociRun(ctx, rec, [3]*os.File{f}, "update", "--resources", "-", rec.ID)
}
