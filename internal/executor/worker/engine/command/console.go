//go:build cgo

package command

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
)

// ociConsole is a socket to which a runtime sends a pty's master.
type ociConsole struct {
	dir, path string
	l         *net.UnixListener
}

// consolePrefix begins the names of the sockets' directories, in the executor's: a socket's path must be short.
const consolePrefix = "pty-"

func (c *runner) newConsole() (*ociConsole, error) {
	dir, err := os.MkdirTemp(c.cfg.Dir, consolePrefix)
	if err != nil {
		return nil, err
	}
	console := &ociConsole{dir: dir, path: filepath.Join(dir, "s")}
	if console.l, err = net.ListenUnix("unix", &net.UnixAddr{Name: console.path, Net: "unix"}); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return console, nil
}

// close is for a console that is nil too.
func (c *ociConsole) close() {
	if c != nil {
		c.l.Close()
		os.RemoveAll(c.dir)
	}
}

// receive takes the master, which is the caller's. The runtime has ended, so it has sent it.
func (c *ociConsole) receive() (protocol.FD, error) {
	c.l.SetDeadline(time.Now().Add(time.Second))
	conn, err := c.l.AcceptUnix()
	if err != nil {
		return -1, fmt.Errorf("receive the terminal: %w", err)
	}
	defer conn.Close()
	f, err := conn.File()
	if err != nil {
		return -1, err
	}
	defer f.Close()
	fd, err := protocol.ReceiveFD(protocol.FD(f.Fd()))
	if err != nil {
		return -1, fmt.Errorf("receive the terminal: %w", err)
	}
	return fd, nil
}

// RemoveConsoles removes what a worker that was killed has left in the executor's directory.
func RemoveConsoles(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, consolePrefix+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
