//go:build cgo

package command

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// Libcontainer makes containers with libcontainer, by the command line that this program has itself (package ocicmd). It takes what native does
// not: user namespaces, hooks and more.
type Libcontainer struct {
	*runner
	root string // of libcontainer's state
}

// NewLibcontainer returns it. Its commands end with ctx.
func NewLibcontainer(ctx context.Context, cfg Config) *Libcontainer {
	root := filepath.Join(cfg.Dir, "libcontainer")
	return &Libcontainer{&runner{ctx: ctx, cfg: cfg, of: own{root, cfg.Patience}}, root}
}

// own is how this program's own command line is spoken with.
type own struct {
	root     string
	patience time.Duration
}

func (o own) timeout() time.Duration { return o.patience }

func (o own) line(record.Record) []string {
	return slices.Concat(ownCommand, []string{"--root", o.root})
}

func (own) name(record.Record) string { return "libcontainer" }

func (own) programFailed(code int) bool { return code == ocicmd.CodeProgram }

// explain has nothing to add: the code has told it.
func (own) explain(_ context.Context, err error, _ ...string) error { return err }

// execFIFO is the name of the FIFO in libcontainer's state directory at which a created container's init waits until
// somebody reads from it.
const execFIFO = "exec.fifo"

// Create is engine.Engine's. Hooks are told the container's own bundle.
func (l *Libcontainer) Create(ctx context.Context, s engine.Initial) (engine.Made, error) {
	return l.create(ctx, s, l.bundle(s.Record.ID), "--hooks-bundle", s.Record.Bundle)
}

// Gate is engine.Engine's.
func (l *Libcontainer) Gate(rec record.Record) string {
	return filepath.Join(l.root, string(rec.ID), execFIFO)
}

// Signal is engine.Engine's.
func (l *Libcontainer) Signal(_ context.Context, _ record.Record, fd *proc.FD, sig unix.Signal) error {
	return fd.Signal(sig)
}

// Update is engine.Engine's.
func (l *Libcontainer) Update(_ context.Context, rec record.Record, change engine.Change) error {
	return rec.Group().Set(change.Values)
}

// Remove is engine.Engine's. What libcontainer has of a container is not there before Create got far, and after an earlier delete.
func (l *Libcontainer) Remove(ctx context.Context, rec record.Record) error {
	if _, err := os.Lstat(filepath.Join(l.root, string(rec.ID))); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return l.run(ctx, rec, [3]*os.File{}, "delete", "--force", string(rec.ID))
}
