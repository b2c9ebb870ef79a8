//go:build cgo

package command

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/sitter"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/proc"
)

// Runtimes makes containers by the command lines of OCI runtimes. Each container names its own.
type Runtimes struct{ *runner }

// NewRuntimes returns it. Its commands end with ctx.
func NewRuntimes(ctx context.Context, cfg Config) *Runtimes {
	return &Runtimes{&runner{ctx: ctx, cfg: cfg, of: theirs{ctx, cfg.Dir}}}
}

// theirs is how the runtimes of others are spoken with.
type theirs struct {
	ctx context.Context
	dir string
}

func (theirs) timeout() time.Duration { return ociTimeout }

func (theirs) line(rec record.Record) []string {
	return []string{rec.Runtime.Path, "--root", rec.Runtime.Root}
}

func (theirs) name(rec record.Record) string { return rec.Runtime.Path }

// programFailed is not known: runtimes tell it to people only.
func (theirs) programFailed(int) bool { return false }

// explain has the look at the program taken by ourselves.
func (t theirs) explain(ctx context.Context, err error, args ...string) error {
	if !errors.Is(err, sitter.ErrCommand) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	s, serr := sitter.Start(sitter.Config{Args: slices.Concat(ownCommand, []string{"--root", t.dir, "executable"}, args), Env: ociEnv})
	if serr != nil {
		return err
	}
	defer s.Close(t.ctx)
	if code, serr := s.Ended(ctx); serr == nil && code == ocicmd.CodeProgram {
		return &spawn.ProgramError{Text: err.Error()}
	}
	return err
}

// Create is engine.Engine's.
func (r *Runtimes) Create(ctx context.Context, s engine.Initial) (engine.Made, error) {
	dir, err := r.bundleDir(s.Record)
	if err != nil {
		return engine.Made{}, err
	}
	return r.create(ctx, s, dir)
}

// bundleDir is where the bundle of our own is written. Hooks read it too: those of a container with a user namespace as an ordinary user of the host, who
// passes the container's directory by its group, and comes to no record.
func (r *Runtimes) bundleDir(rec record.Record) (string, error) {
	st, err := os.Stat(rec.Bundle)
	if err != nil {
		return "", err
	}
	gid := st.Sys().(*syscall.Stat_t).Gid
	if gid == 0 {
		return r.bundle(rec.ID), nil
	}
	dir := bundleInside(rec)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, private.Group(dir, gid)
}

func bundleInside(rec record.Record) string { return filepath.Join(rec.Bundle, "oci-"+string(rec.ID)) }

// Gate is engine.Engine's: only a runtime itself knows how its containers wait.
func (r *Runtimes) Gate(record.Record) string { return "" }

// Signal is engine.Engine's. It sends the signal to the first process as its runtime sees it, which need not be the one that the host sees.
func (r *Runtimes) Signal(ctx context.Context, rec record.Record, fd *proc.FD, sig unix.Signal) error {
	if sig == 0 || rec.Phase() != protocol.Running {
		return fd.Signal(sig)
	}
	ctx, cancel := context.WithTimeout(ctx, r.of.timeout())
	defer cancel()
	log := r.file(rec.ID, "oci-kill.log")
	s, err := sitter.Start(sitter.Config{Args: append(r.program(rec, log), "kill", string(rec.ID), strconv.Itoa(int(sig))), Env: ociEnv})
	if err != nil {
		return err
	}
	defer s.Close(r.ctx)
	code, err := s.Ended(ctx)
	if err == nil && code != 0 {
		err = &sitter.CommandError{Code: code}
	}
	if err != nil && !engine.IsDead(rec) { // it may have ended meanwhile
		return r.failure(rec, "kill", err, log)
	}
	return nil
}

// Update is engine.Engine's. It sets resources through the runtime, so that it knows them too.
func (r *Runtimes) Update(ctx context.Context, rec record.Record, change engine.Change) error {
	raw, err := json.Marshal(change.Whole)
	if err != nil {
		return err
	}
	path := r.file(rec.ID, "resources.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := r.run(ctx, rec, [3]*os.File{f}, "update", "--resources", "-", string(rec.ID)); err != nil {
		return err
	}
	return r.cfg.Hugepages.LimitAgain(rec.Cgroups, change.Hugepages)
}

// Remove is engine.Engine's.
func (r *Runtimes) Remove(ctx context.Context, rec record.Record) error {
	if err := r.removeTheirs(ctx, rec); err != nil {
		return err
	}
	return os.RemoveAll(bundleInside(rec))
}

// removeTheirs has the container's runtime remove it. It does not know it before Create got far, and after an earlier delete.
func (r *Runtimes) removeTheirs(ctx context.Context, rec record.Record) error {
	err := r.run(ctx, rec, [3]*os.File{}, "delete", "--force", string(rec.ID))
	if err == nil {
		return nil
	}
	if _, serr := os.Stat(rec.Runtime.Path); errors.Is(serr, fs.ErrNotExist) {
		r.cfg.Log.Warn("the OCI runtime of a container is gone; what it has stored of it is removed", "container", rec.ID, "runtime", rec.Runtime.Path)
		return os.RemoveAll(filepath.Join(rec.Runtime.Root, string(rec.ID)))
	}
	if serr := r.run(ctx, rec, [3]*os.File{}, "state", string(rec.ID)); errors.Is(serr, sitter.ErrCommand) {
		return nil // it does not know the container
	}
	return err
}
