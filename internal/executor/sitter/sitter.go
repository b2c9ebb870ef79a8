//go:build cgo

// Package sitter runs commands of OCI runtimes, and tells how they and the processes that they leave end.
//
// A runtime's command that starts a process in a container (exec --detach) ends at once and leaves an orphan, whose exit
// only its new parent learns. A sitter is a small process (this very program, branched off in C before Go's runtime
// starts) that becomes this parent. And no command outlives whoever asked for it: when the caller closes the Sitter, or is
// killed, the sitter kills the command and what it has started, with the session of the process that it has left; until all has
// ended it holds a lock, on which a successor can wait.
package sitter

import "C" // makes sitter.c part of the program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/pairs"
)

// Name is a sitter's argv[0], as sitter.c has it too.
const Name = "monopod:sitter"

// Config says what to run.
type Config struct {
	// Args is the command, its program as an absolute path.
	Args []string
	Env  []string
	// Stdio are the command's; they stay the caller's. One that is nil is /dev/null.
	Stdio [3]*os.File
	// PIDFile is where the command writes the pid of the process that it leaves. Empty: it leaves none that is asked for,
	// and what it leaves goes to the next subreaper when it has ended well.
	PIDFile string
	// Lock is a file that was locked by flock(2); it stays locked until all has ended, and is the caller's to close.
	Lock *os.File
}

// Sitter is a command that runs, or the process that it has left. Its methods are for one goroutine, but for Close.
type Sitter struct {
	pid     int
	channel *os.File
	process *os.Process
	fd      *proc.FD
}

// ErrCommand says that the command ended with an error.
var ErrCommand = errors.New("the command failed")

// CommandError is ErrCommand with the command's exit code.
type CommandError struct{ Code int }

func (e *CommandError) Error() string        { return fmt.Sprintf("%v: exit code %d", ErrCommand, e.Code) }
func (e *CommandError) Is(target error) bool { return target == ErrCommand }

type message struct{ Kind, Value int32 }

// Start starts the command.
func Start(cfg Config) (*Sitter, error) {
	ours, theirs, err := pairs.Packets("sitter")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer null.Close()
	files := []*os.File{null, null, null, theirs, cfg.Lock}
	for i, f := range cfg.Stdio {
		if f != nil {
			files[i] = f
		}
	}
	if cfg.Lock == nil {
		files = files[:4]
	}
	p, err := os.StartProcess("/proc/self/exe", append([]string{Name, cfg.PIDFile}, cfg.Args...),
		&os.ProcAttr{Dir: "/", Env: cfg.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start a sitter for %s: %w", cfg.Args[0], err)
	}
	fd, err := proc.OpenFD(p.Pid) // our unreaped child: the pid is its own
	if err != nil {
		ours.Close() // which ends it
		_, _ = p.Wait()
		return nil, err
	}
	return &Sitter{pid: p.Pid, channel: ours, process: p, fd: fd}, nil
}

// Pid is the sitter's own pid: the parent of the process that the command leaves.
func (s *Sitter) Pid() int { return s.pid }

// Release lets the process that the command has left be reaped, after Ended has told its end. Until then its pid is nobody else's,
// and neither is its session. What else is in its session goes on. Close is to be called all the same.
func (s *Sitter) Release() error {
	_, err := s.channel.Write([]byte{0})
	return err
}

// closePatience bounds how long Close waits for what it has had killed.
const closePatience = time.Second

// Close gives up: what runs is killed, unless it was released. It returns when all has ended, or, where something hangs in the kernel, after a
// second; the sitter is then reaped when it ends, as long as life lasts, and holds its lock until then.
func (s *Sitter) Close(life context.Context) error {
	s.channel.Close()
	reap := func() error {
		defer s.fd.Close()
		_, err := s.process.Wait()
		return err
	}
	wait, cancel := context.WithTimeout(life, closePatience)
	defer cancel()
	if err := s.fd.Wait(wait); err == nil {
		return reap()
	}
	go func() {
		if s.fd.Wait(life) == nil {
			_ = reap()
		}
	}()
	return errors.New("the command has been killed, and hangs in the kernel")
}

// Left waits until the command has ended, and returns the pid of the process that it has left.
func (s *Sitter) Left(ctx context.Context) (pid int, err error) {
	m, err := s.hear(ctx)
	switch {
	case err != nil:
		return 0, err
	case m.Kind != 'P':
		return 0, &CommandError{Code: int(m.Value)}
	case m.Value <= 0:
		return 0, fmt.Errorf("%w: it has written no pid", ErrCommand)
	}
	return int(m.Value), nil
}

// Ended waits for the end of the process that the command has left, or of the command, and returns its exit code.
func (s *Sitter) Ended(ctx context.Context) (code int, err error) {
	m, err := s.hear(ctx)
	if err != nil {
		return 0, err
	}
	if m.Kind != 'X' {
		return 0, fmt.Errorf("the sitter says %q", m.Kind)
	}
	return int(m.Value), nil
}

// hear waits for a message.
func (s *Sitter) hear(ctx context.Context) (m message, err error) {
	stop := context.AfterFunc(ctx, func() { s.channel.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, binary.Size(m))
	n, err := s.channel.Read(buf)
	switch {
	case ctx.Err() != nil:
		return m, ctx.Err()
	case errors.Is(err, io.EOF):
		return m, errors.New("the sitter ended without a word")
	case err != nil:
		return m, err
	case n != len(buf):
		return m, fmt.Errorf("the sitter says %q", buf[:n])
	}
	_, err = binary.Decode(buf, binary.NativeEndian, &m)
	return m, err
}
