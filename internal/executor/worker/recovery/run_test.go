//go:build cgo

package recovery

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/life"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
)

// keeper notes what it is asked to hold.
type keeper struct {
	mu       sync.Mutex
	held     map[string][]string // names by key
	released []string
}

func (k *keeper) Hold(_ context.Context, h hold.Holding, fds ...protocol.FD) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(fds) != len(h.Names) {
		return errors.New("a name is without a descriptor")
	}
	k.held[h.Key] = h.Names
	return nil
}

func (k *keeper) Drop(context.Context, string, ...string) error { return nil }

func (k *keeper) Release(_ context.Context, key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.released = append(k.released, key)
	delete(k.held, key)
	return nil
}

func (k *keeper) Done() <-chan struct{} { return nil }

func (k *keeper) hasReleased(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.released, key)
}

const boot = "this boot"

// place is where a worker begins, after another one.
type place struct {
	records *record.Store
	journal *journal.Journal
	table   *table.Table
	keeper  *keeper
	gate    string
	dir     string
	removed []ids.ContainerID // containers that their engine was asked to remove
}

func newPlace(t *testing.T, recs ...record.Record) *place {
	t.Helper()
	p := &place{keeper: &keeper{held: map[string][]string{}}, dir: t.TempDir()}
	p.gate = filepath.Join(p.dir, "gate")
	var err error
	if p.records, err = record.Open(p.dir); err != nil {
		t.Fatal(err)
	}
	if p.journal, err = journal.Open(filepath.Join(p.dir, journal.DirName), boot); err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if err := p.records.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	p.table = table.New(p.records)
	return p
}

// run recovers.
func (p *place) run(t *testing.T, held map[string]*Held) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	var mu sync.Mutex
	l := life.New(life.Config{Ctx: t.Context(), Table: p.table, Records: p.records, Journal: p.journal, Keeper: p.keeper, KeeperPID: -1, Log: log,
		Remove: func(_ context.Context, rec record.Record) error {
			mu.Lock()
			defer mu.Unlock()
			p.removed = append(p.removed, rec.ID)
			return nil
		}})
	New(Config{Ctx: t.Context(), BootID: boot, KeeperPID: -1, Table: p.table, Life: l, Records: p.records, Journal: p.journal, Keeper: p.keeper, Log: log,
		Gate: func(record.Record) string { return p.gate }}).Run(held)
}

// noProcess is the pid of none: the kernel gives no larger one than its maximum, which is this.
const noProcess = 1 << 22

func running(id ids.ContainerID) record.Record {
	at := time.Unix(1, 0).UTC()
	return record.Record{BootID: boot, ID: id, Stage: record.StageRunning, PID: noProcess, StartTime: 7, CreatedAt: at, StartedAt: at}
}

func changed(r record.Record, f func(*record.Record)) record.Record {
	f(&r)
	return r
}

// Each container is seen to the end that its record, the keeper and the journal leave for it.
func TestRun(t *testing.T) {
	exit := &protocol.Exit{Code: 5, At: time.Unix(3, 0).UTC()}
	for name, c := range map[string]struct {
		rec     record.Record
		held    bool
		journal *journal.Exit
		want    *protocol.Exit // nil: the container is gone
		removed bool
	}{
		"being created": {rec: changed(running("a"), func(r *record.Record) {
			r.Stage, r.CreatedAt, r.StartedAt = record.StageCreating, time.Time{}, time.Time{}
		}), held: true, removed: true},
		"being deleted": {rec: changed(running("a"), func(r *record.Record) { r.Stage, r.Exit = record.StageDeleting, exit }), removed: true},
		"has exited":    {rec: changed(running("a"), func(r *record.Record) { r.Stage, r.Exit = record.StageExited, exit }), want: exit},
		"exit in the journal": {rec: running("a"), journal: &journal.Exit{PID: noProcess, StartTime: 7, Code: 9, Executed: true},
			want: &protocol.Exit{Code: 9}},
		"ended unseen": {rec: running("a"), want: &protocol.Exit{Code: 255, Reason: protocol.ReasonUnknown}},
		"another boot": {rec: changed(running("a"), func(r *record.Record) { r.BootID, r.PID = "the last one", os.Getpid() }),
			want: &protocol.Exit{Code: 255, Reason: protocol.ReasonUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, c.rec)
			if c.journal != nil {
				if _, err := p.journal.Put(*c.journal); err != nil {
					t.Fatal(err)
				}
			}
			held := map[string]*Held{}
			if c.held {
				held[hold.ContainerKey("a")] = NewHeld(hold.Holding{Key: hold.ContainerKey("a"), PID: noProcess, StartTime: 7}, nil)
			}
			p.run(t, held)
			stored, err := p.records.One("a")
			if c.want == nil {
				if _, gerr := p.table.Get("a"); gerr == nil || !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("it is there still: %v; %+v, %v", gerr, stored, err)
				}
				if !p.keeper.hasReleased(hold.ContainerKey("a")) {
					t.Error("the keeper has not been told to release it")
				}
			} else {
				container, gerr := p.table.Existing("a")
				if gerr != nil || err != nil {
					t.Fatal(gerr, err)
				}
				<-container.Exited()
				rec := container.Record()
				if rec.Exit == nil || rec.Exit.Code != c.want.Code || rec.Exit.Reason != c.want.Reason {
					t.Errorf("exit %+v, want %+v", rec.Exit, c.want)
				}
				if stored.Exit == nil || stored.Exit.Code != c.want.Code {
					t.Errorf("stored: %+v", stored.Exit)
				}
			}
			if got := slices.Contains(p.removed, "a"); got != c.removed {
				t.Errorf("its engine has removed it: %v, want %v", got, c.removed)
			}
		})
	}
}

// A container whose keeper died too is given to the new one, with a pidfd, and noted as a stranger's child; one that had been let go leaves no gate.
func TestAdopt(t *testing.T) {
	stat, err := proc.ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, changed(running("a"), func(r *record.Record) { r.PID, r.StartTime = os.Getpid(), stat.StartTime }))
	if err := os.WriteFile(p.gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(t, map[string]*Held{})
	if want := map[string][]string{hold.ContainerKey("a"): {hold.PIDFD}}; !maps.EqualFunc(p.keeper.held, want, slices.Equal[[]string]) {
		t.Errorf("held: %q, want %q", p.keeper.held, want)
	}
	c, err := p.table.Existing("a")
	if err != nil {
		t.Fatal(err)
	}
	if rec := c.Record(); !rec.Adopted || rec.Phase() != protocol.Running || c.Process() == nil {
		t.Errorf("%+v, process %v; want it adopted, and watched", rec, c.Process())
	}
	if stored, err := p.records.One("a"); err != nil || !stored.Adopted {
		t.Errorf("stored: %+v, %v", stored, err)
	}
	if _, err := os.Lstat(p.gate); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the gate: %v, want it gone", err)
	}
}

// What belongs to no container is released; a record that cannot be read is left as it is, and spoils no other.
func TestRunWithRemains(t *testing.T) {
	p := newPlace(t, changed(running("good"), func(r *record.Record) { r.Stage, r.Exit = record.StageExited, &protocol.Exit{} }))
	bad := p.records.File("bad", "record.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(bad), 0o700), os.WriteFile(bad, []byte("no record\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	held := map[string]*Held{}
	for _, key := range []string{hold.ContainerKey("forgotten"), hold.ExecKey("good", "x")} {
		held[key] = NewHeld(hold.Holding{Key: key}, nil)
	}
	p.run(t, held)
	for _, key := range []string{hold.ContainerKey("forgotten"), hold.ExecKey("good", "x")} {
		if !p.keeper.hasReleased(key) {
			t.Errorf("%s is held still", key)
		}
	}
	if _, err := p.table.Existing("good"); err != nil {
		t.Error(err)
	}
	if raw, err := os.ReadFile(bad); err != nil || !strings.HasPrefix(string(raw), "no record") {
		t.Errorf("%q, %v", raw, err)
	}
}
