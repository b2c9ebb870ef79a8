//go:build cgo

package life

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// keeper notes what happens to it.
type keeper struct {
	mu    sync.Mutex
	steps []string
}

func (k *keeper) note(step string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.steps = append(k.steps, step)
}

func (k *keeper) Hold(_ context.Context, h hold.Holding, _ ...protocol.FD) error {
	k.note("hold " + h.Key)
	return nil
}
func (k *keeper) Drop(context.Context, string, ...string) error { return nil }
func (k *keeper) Release(_ context.Context, key string) error {
	k.note("release " + key)
	return nil
}
func (k *keeper) Done() <-chan struct{} { return nil }

func newLife(t *testing.T, k *keeper) *Life {
	t.Helper()
	dir := t.TempDir()
	records, err := record.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(dir, journal.DirName), "this boot")
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Ctx: t.Context(), Table: table.New(records), Records: records, Journal: j, Keeper: k, KeeperPID: -1, Log: slog.New(slog.DiscardHandler),
		Remove: func(context.Context, record.Record) error { k.note("engine removes"); return nil }})
}

// From its first process on a container is held before it is shown, its exit is journalled before it is reaped, and what is held is released before its
// journal and its record go.
func TestLife(t *testing.T) {
	k := &keeper{}
	l := newLife(t, k)
	cmd := exec.Command("sh", "-c", "read x; exit 3")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, release, err := l.cfg.Table.Reserve(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	release()
	rec := record.Record{ID: "a", Stage: record.StageCreating, PID: cmd.Process.Pid}
	if err := l.Hold(t.Context(), &rec, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Present(); err == nil {
		t.Error("it is shown before it is settled")
	}
	pidfd, err := proc.OpenFD(rec.PID)
	if err != nil {
		t.Fatal(err)
	}
	type seen struct {
		code   int
		zombie bool
		err    error
	}
	atJournal := make(chan seen, 1)
	t.Cleanup(failpoint.Arm("executor/worker/journalled", func() error {
		e, ok, err := l.cfg.Journal.Get(rec.PID, rec.StartTime)
		if err == nil && !ok {
			err = errors.New("it is not in the journal")
		}
		stat, serr := proc.ReadStat(rec.PID)
		atJournal <- seen{e.Code, serr == nil && stat.Dead(), errors.Join(err, serr)}
		return nil
	}))
	rec.Stage, rec.CreatedAt, rec.StartedAt = record.StageRunning, time.Now(), time.Now()
	if err := l.Settle(c, rec, pidfd, os.Getpid(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Present(); err != nil {
		t.Error(err)
	}
	in.Close()
	if got := <-atJournal; got != (seen{3, true, nil}) {
		t.Errorf("between the journal and the reap: %+v, want code 3 of a zombie", got)
	}
	<-c.Exited()
	if e := c.Record().Exit; e == nil || e.Code != 3 {
		t.Errorf("exit %+v, want 3", e)
	}
	if _, err := proc.ReadStat(rec.PID); err == nil {
		t.Error("it is not reaped")
	}
	if err := l.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := l.cfg.Journal.Get(rec.PID, rec.StartTime); ok || err != nil {
		t.Errorf("its exit is in the journal still: %v, %v", ok, err)
	}
	if _, err := l.cfg.Records.One("a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its record: %v", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// The release of what has been drained may come before or after the engine's.
	if k.steps[0] != "hold "+hold.ContainerKey("a") || !slices.Contains(k.steps, "engine removes") || !slices.Contains(k.steps, "release "+hold.ContainerKey("a")) {
		t.Errorf("steps %q", k.steps)
	}
}

// What cannot be removed stays recorded, for who comes next; that one finds it, and removes it.
func TestUndoAgain(t *testing.T) {
	k := &keeper{}
	l := newLife(t, k)
	stuck := errors.New("it hangs")
	l.cfg.Remove = func(context.Context, record.Record) error { return stuck }
	rec := record.Record{ID: "a", Stage: record.StageCreating}
	if err := l.cfg.Records.Put(rec); err != nil {
		t.Fatal(err)
	}
	if err := l.Undo(t.Context(), rec); !errors.Is(err, stuck) {
		t.Errorf("undo: %v", err)
	}
	if _, err := l.cfg.Records.One("a"); err != nil {
		t.Errorf("its record is gone: %v", err)
	}
	l.cfg.Remove = func(context.Context, record.Record) error { return nil }
	if err := errors.Join(l.UndoEarlier(t.Context(), "a"), l.UndoEarlier(t.Context(), "a")); err != nil { // the second time there is nothing to do
		t.Error(err)
	}
	if _, err := l.cfg.Records.One("a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its record: %v", err)
	}
}
