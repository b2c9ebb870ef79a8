//go:build cgo

package worker

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// libcontainers makes containers with libcontainer, by the command line that this program has itself (package ocicmd). It takes what native does
// not: user namespaces, hooks and more.
type libcontainers struct{ *commands }

// execFIFO is the name of the FIFO in libcontainer's state directory at which a created container's init waits until
// somebody reads from it.
const execFIFO = "exec.fifo"

func (l *libcontainers) fifo(rec record.Record) string {
	return filepath.Join(l.commands.own.root, rec.ID, execFIFO)
}

func (l *libcontainers) waits(rec record.Record) bool {
	_, err := os.Lstat(l.fifo(rec))
	return err == nil
}

func (l *libcontainers) released(rec record.Record) { os.Remove(l.fifo(rec)) }

func (l *libcontainers) signal(_ context.Context, _ record.Record, fd *proc.FD, sig unix.Signal) error {
	return fd.Signal(sig)
}

func (l *libcontainers) update(_ context.Context, rec record.Record, change resourceChange) error {
	return rec.Group().Set(change.values)
}
