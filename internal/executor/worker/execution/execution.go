//go:build cgo

// Package execution is the processes that run in a container beside its first: each is signalled, alone or with all of its session, and resized.
package execution

import (
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/host/proc"
)

// Execution is a process that was started in a running container.
type Execution struct {
	mu    sync.Mutex
	pidfd *proc.FD      // nil: not started yet, or ended
	early []unix.Signal // came before the process was known
	told  []unix.Signal // went to the whole session
	pty   *os.File      // the master; nil: none
}

// Signal sends the process a signal, as soon as it is known.
func (x *Execution) Signal(sig unix.Signal) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pidfd == nil {
		x.early = append(x.early, sig)
		return nil
	}
	return x.pidfd.Signal(sig)
}

// Begin makes the process known. Who sees its first output may have sent it a signal before this.
func (x *Execution) Begin(pidfd *proc.FD) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pidfd = pidfd
	for _, sig := range x.early {
		pidfd.Signal(sig) // it may have ended
	}
	x.early = nil
}

// Resize sets the size of the terminal.
func (x *Execution) Resize(width, height uint16) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pty == nil {
		return fmt.Errorf("%w: the exec has no terminal, or does not run", errdefs.ErrFailedPrecondition)
	}
	return stdio.SetSize(x.pty, width, height)
}

// End forgets the process, before its pidfd is closed.
func (x *Execution) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pidfd = nil
	if x.pty != nil {
		x.pty.Close()
		x.pty = nil
	}
}

// PassPTY sends the pty's master to the caller, and keeps it to resize it.
func (x *Execution) PassPTY(master, caller protocol.FD) error {
	if err := unix.Sendmsg(int(caller), []byte{0}, unix.UnixRights(int(master)), nil, 0); err != nil {
		master.Close()
		return fmt.Errorf("send the terminal to the caller: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pty = master.File("pty") // no more than a handle for ioctl: neither read nor polled
	return nil
}
