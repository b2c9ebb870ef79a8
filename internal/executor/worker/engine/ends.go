//go:build cgo

package engine

import (
	"fmt"
	"os"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
)

// Ends are both ends of a container's stdio, while it is created.
type Ends struct {
	Ours   map[string]protocol.FD // by the names of package hold
	theirs []*os.File
}

// NoEnds are none yet.
func NoEnds() *Ends { return &Ends{Ours: map[string]protocol.FD{}} }

// Stdio returns the process's ends: stdin, stdout, stderr; nil is none.
func (e *Ends) Stdio() (files [3]*os.File) {
	for _, f := range e.theirs {
		switch f.Name() {
		case "stdin":
			files[0] = f
		case hold.Stdout:
			files[1] = f
		case hold.Stderr:
			files[2] = f
		}
	}
	return files
}

// NewEnds makes the pipes, and gives the process its ends.
func NewEnds(p *libcontainer.Process, stdin bool) (e *Ends, err error) {
	e = NoEnds()
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	if stdin {
		r, w, err := pipe()
		if err != nil {
			return e, err
		}
		e.Ours[hold.Stdin] = w
		f := r.File("stdin")
		p.Stdin, e.theirs = f, append(e.theirs, f)
	}
	for _, name := range []string{hold.Stdout, hold.Stderr} {
		r, w, err := pipe()
		if err != nil {
			return e, err
		}
		e.Ours[name] = r
		f := w.File(name)
		e.theirs = append(e.theirs, f)
		if name == hold.Stdout {
			p.Stdout = f
		} else {
			p.Stderr = f
		}
	}
	return e, nil
}

// pipe makes a pipe whose ends both block: ours is made non-blocking when it is used, theirs must not be.
func pipe() (r, w protocol.FD, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("pipe: %w", err)
	}
	return protocol.FD(fds[0]), protocol.FD(fds[1]), nil
}

// OwnStdio gives a process's pipes to the root of its container's user namespace, if there is one. Nobody in there could open
// them again (/dev/stdout) while they belong to a user that the namespace does not know.
func OwnStdio(p *libcontainer.Process, config *configs.Config) error {
	if !config.Namespaces.Contains(configs.NEWUSER) {
		return nil
	}
	uid, err := config.HostRootUID()
	if err != nil {
		return err
	}
	gid, err := config.HostRootGID()
	if err != nil {
		return err
	}
	for _, stream := range []any{p.Stdin, p.Stdout, p.Stderr} {
		f, ok := stream.(*os.File)
		if !ok || f == nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return fmt.Errorf("stdio: %w", err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		if err := unix.Fchown(int(f.Fd()), uid, gid); err != nil {
			return fmt.Errorf("give the stdio to user %d: %w", uid, err)
		}
	}
	return nil
}

// Files hands our ends over.
func (e *Ends) Files() map[string]*os.File {
	files := map[string]*os.File{}
	for name, fd := range e.Ours {
		files[name] = fd.Pollable(name)
	}
	e.Ours = nil
	return files
}

// CloseTheirs closes the process's ends.
func (e *Ends) CloseTheirs() {
	for _, f := range e.theirs {
		f.Close()
	}
	e.theirs = nil
}

// Close closes what has not been handed over.
func (e *Ends) Close() {
	e.CloseTheirs()
	for _, fd := range e.Ours {
		fd.Close()
	}
	e.Ours = nil
}
