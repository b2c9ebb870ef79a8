//go:build cgo

package worker

import (
	"errors"
	"fmt"
	"os"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
)

// ends are both ends of a container's stdio, while it is created.
type ends struct {
	ours   map[string]protocol.FD // by the names of package hold
	theirs []*os.File
}

// emptyEnds are none yet.
func emptyEnds() *ends { return &ends{ours: map[string]protocol.FD{}} }

// stdio returns the process's ends: stdin, stdout, stderr; nil is none.
func (e *ends) stdio() (files [3]*os.File) {
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

// newEnds makes the pipes, and gives the process its ends.
func newEnds(p *libcontainer.Process, stdin bool) (e *ends, err error) {
	e = emptyEnds()
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if stdin {
		r, w, err := pipe()
		if err != nil {
			return e, err
		}
		e.ours[hold.Stdin] = w
		f := r.File("stdin")
		p.Stdin, e.theirs = f, append(e.theirs, f)
	}
	for _, name := range []string{hold.Stdout, hold.Stderr} {
		r, w, err := pipe()
		if err != nil {
			return e, err
		}
		e.ours[name] = r
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

// ownStdio gives a process's pipes to the root of its container's user namespace, if there is one. Nobody in there could open
// them again (/dev/stdout) while they belong to a user that the namespace does not know.
func ownStdio(p *libcontainer.Process, config *configs.Config) error {
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

// files hands our ends over.
func (e *ends) files() map[string]*os.File {
	files := map[string]*os.File{}
	for name, fd := range e.ours {
		files[name] = pollable(fd, name)
	}
	e.ours = nil
	return files
}

func (e *ends) closeTheirs() {
	for _, f := range e.theirs {
		f.Close()
	}
	e.theirs = nil
}

func (e *ends) close() {
	e.closeTheirs()
	for _, fd := range e.ours {
		fd.Close()
	}
	e.ours = nil
}

// errNoFD says that nothing with a descriptor waits in a socket.
var errNoFD = errors.New("no descriptor was sent")

// receiveFD takes a descriptor that waits in a socket. It does not wait for one.
func receiveFD(sock protocol.FD) (protocol.FD, error) {
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	var oobn int
	var err error
	for {
		_, oobn, _, _, err = unix.Recvmsg(int(sock), buf, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return -1, err
	}
	for _, m := range msgs {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return protocol.FD(fds[0]), nil
		}
	}
	return -1, errNoFD
}
