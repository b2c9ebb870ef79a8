//go:build cgo

// Package command is the engines that are command lines: those of the OCI runtimes that containers name, and the one that this program has itself,
// for libcontainer.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/sitter"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// runner runs the commands of a runtime. A container of it is held, watched, logged and told of as a native one. What the runtime is handed lies
// beside the container's record: its bundle, pid files, logs of its own.
//
// A container's first process is the keeper's child from the begin. No command of a runtime outlives its worker: a sitter kills it,
// and the next worker waits for that (the lock) before it undoes or repeats anything.
type runner struct {
	ctx context.Context // ends with the worker
	cfg Config
	of  dialect
}

// Config is what the engines need that are command lines.
type Config struct {
	Dir       string        // the executor's, for the sockets of consoles
	Patience  time.Duration // bounds one command of our own, which takes some tens of milliseconds, and the hooks that it runs
	KeeperPID int
	Records   *record.Store
	Specs     *bundle.Reader
	Hugepages group.Hugepages
	Log       *slog.Logger
}

var (
	_ engine.Engine = (*Runtimes)(nil)
	_ engine.Engine = (*Libcontainer)(nil)
)

// dialect is what one runtime has otherwise than another.
type dialect interface {
	// timeout bounds one command.
	timeout() time.Duration
	// line is the command line before its options, of a container's runtime.
	line(rec record.Record) []string
	// name is how the runtime is called in errors.
	name(rec record.Record) string
	// programFailed reports whether that is the code of a command that has failed for the program, or a poststart hook, of the container's.
	programFailed(code int) bool
	// explain finds out whether the program was the reason of an error that does not say so.
	explain(ctx context.Context, err error, args ...string) error
}

const (
	// ociTimeout bounds one command of a runtime.
	ociTimeout = 2 * time.Minute
	// ociLockTimeout bounds the wait for a dead worker's command to be killed.
	ociLockTimeout = 10 * time.Second
	// findTimeout bounds the search for the reason of a failure.
	findTimeout = 5 * time.Second
)

// ociEnv is a runtime's environment: it looks for its helpers in the path.
var ociEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// ownCommand is this program's command line of an OCI runtime.
var ownCommand = []string{"/proc/self/exe", "oci"}

// program is a runtime's command line up to its command, with a log of its own, which is emptied.
func (c *runner) program(rec record.Record, log string) []string {
	os.Remove(log)
	return slices.Concat(c.of.line(rec), []string{"--log", log, "--log-format", "json"})
}

// run runs a command that changes the container, and returns when it has ended. A spawn.ProgramError says that it has failed for the
// program, or a poststart hook.
func (c *runner) run(ctx context.Context, rec record.Record, stdio [3]*os.File, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, c.of.timeout())
	defer cancel()
	lock, err := c.lock(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer lock.Close()
	log := c.file(rec.ID, "oci-"+args[0]+".log")
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
func (c *runner) failure(rec record.Record, command string, err error, log string) error {
	var failed *sitter.CommandError
	isProgram := errors.As(err, &failed) && c.of.programFailed(failed.Code)
	err = fmt.Errorf("%s %s: %w%s", c.of.name(rec), command, err, ociMessage(log))
	if isProgram {
		return &spawn.ProgramError{Text: err.Error()}
	}
	return err
}

// file is where a file is that lies beside the container's record.
func (c *runner) file(id ids.ContainerID, name string) string { return c.cfg.Records.File(id, name) }

// bundle is where a container's bundle of our own is.
func (c *runner) bundle(id ids.ContainerID) string { return c.file(id, "bundle") }

// lock takes the container's lock, which the sitter of a dead worker may still hold.
func (c *runner) lock(ctx context.Context, id ids.ContainerID) (*os.File, error) {
	path := c.file(id, "oci.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() { locked <- flock(f) }()
	select {
	case err = <-locked:
		if err == nil {
			return f, nil
		}
		locked <- err
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(ociLockTimeout):
		err = fmt.Errorf("%w: a command of the runtime still runs", context.DeadlineExceeded)
	}
	go func() { <-locked; f.Close() }() // not before flock has returned: the number could be somebody else's by then
	return nil, fmt.Errorf("lock %s: %w", path, err)
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

// Start is engine.Engine's: it lets the first process run its program. That it runs already is no error: a command of a dead worker may have
// done it.
func (c *runner) Start(ctx context.Context, made *table.Container, rec record.Record) (executed bool, err error) {
	if err := c.run(ctx, rec, [3]*os.File{}, "start", string(rec.ID)); err != nil {
		if stat, serr := engine.ReadStat(rec); serr != nil || !stat.Executed() {
			return false, err
		}
	}
	if err := failpoint.Hit("executor/worker/oci/started"); err != nil {
		return false, err
	}
	return engine.AwaitExecution(ctx, made.Ended(), rec.PID, rec.StartTime)
}
